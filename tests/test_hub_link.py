"""The course on a JupyterHub: the link that `release` prints, what the doctor says there, and the sample settings."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from traitlets.config.loader import PyFileConfigLoader

from course_lib.__main__ import main
from course_lib.cli import doctor, release, start
from course_lib.course.handout import Handed
from course_lib.course.hub_link import hub_link, origin, public_address
from tests.with_git import git, without_settings

ROOT = Path(__file__).parent.parent
SAMPLES = ROOT / ".github" / "hub"
FIRST = "notebooks/00_start_here.ipynb"


# ------------------------------------------------------------------------------------------------------------- the link
@pytest.mark.parametrize(
    ("hub", "repository", "branch", "link"),
    [
        (
            "https://hub.example.org",
            "https://github.com/OWNER/NAME",
            "main",
            "https://hub.example.org/hub/user-redirect/git-pull?repo=https%3A%2F%2Fgithub.com%2FOWNER%2FNAME"
            "&urlpath=lab%2Ftree%2FNAME%2Fnotebooks%2F00_start_here.ipynb&branch=main",
        ),
        (
            "https://example.org:8443/jupyter/",
            "https://git.example.org/~a+b/c&d",
            "week+2/ü",
            "https://example.org:8443/jupyter/hub/user-redirect/git-pull?repo=https%3A%2F%2Fgit.example.org%2F%7Ea%2Bb%2F"
            "c%26d&urlpath=lab%2Ftree%2Fc%26d%2Fnotebooks%2F00_start_here.ipynb&branch=week%2B2%2F%C3%BC",
        ),
        (
            "http://127.0.0.1:8000/",
            "https://git.example.org/a*b/c_d-e.f",
            "main",
            "http://127.0.0.1:8000/hub/user-redirect/git-pull?repo=https%3A%2F%2Fgit.example.org%2Fa*b%2Fc_d-e.f"
            "&urlpath=lab%2Ftree%2Fc_d-e.f%2Fnotebooks%2F00_start_here.ipynb&branch=main",
        ),
    ],
)
def test_the_link_is_the_one_that_nbgitpullers_own_generator_makes(hub, repository, branch, link):
    """The links are from that generator, the page of nbgitpuller 1.3's documentation, for the same fields."""
    assert hub_link(hub, repository, branch, FIRST) == link


NO_HUB = """hub.example.org  ftp://hub.example.org  https://  https://hub.example.org/hub/home
    https://hub.example.org/user/ada/lab  https://hub.example.org?next=x"""
OF_A_TEACHER = """git@github.com:OWNER/NAME.git  ssh://git@github.com/OWNER/NAME.git  ssh://git@github.com:22/OWNER/NAME
    https://github.com/OWNER/NAME.git  https://github.com/OWNER/NAME/  https://teacher:secret@github.com/OWNER/NAME"""


@pytest.mark.parametrize("hub", ["", *NO_HUB.split()])
def test_what_is_no_hubs_address_is_refused(hub):
    with pytest.raises(ValueError, match="--hub"):
        hub_link(hub, "https://github.com/OWNER/NAME", "main", FIRST)


@pytest.mark.parametrize("address", OF_A_TEACHER.split())
def test_a_teachers_own_address_becomes_one_that_needs_neither_key_nor_password(address):
    assert public_address(address) == "https://github.com/OWNER/NAME"


def test_a_folder_of_the_teachers_machine_is_no_address_for_learners(tmp_path):
    for folder in (str(tmp_path / "far.git"), "../far.git", "far.git", "https://github.com", "C:\\far.git"):
        with pytest.raises(ValueError, match="--repository"):
            public_address(folder)
    assert public_address(f"file://{tmp_path}/far.git") == f"file://{tmp_path}/far"


# ------------------------------------------------------------------------------------------------------------- release
@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package that is pushed somewhere, and a `release` that writes nothing but which chapters there are."""
    without_settings(monkeypatch)
    folder = tmp_path / "package"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=week")
    git(folder, "remote", "add", "origin", "git@github.com:OWNER/NAME.git")
    made = SimpleNamespace(folder=folder, hub=[], chapters=[[], [0, 1, 2]])

    def write(root, folder, chapters, dates, update, hub):
        made.hub.append(hub)
        made.chapters.pop(0)
        return [Handed("README.md", "given", ROOT / "README.md")]

    monkeypatch.setattr("course_lib.grading.page.package.release", write)
    monkeypatch.setattr(release, "released", lambda folder: made.chapters[0])
    monkeypatch.chdir(tmp_path)
    return made


def link_to(notebook, hub="https://hub.example.org"):
    return hub_link(hub, "https://github.com/OWNER/NAME", "week", f"notebooks/{notebook}")


def test_release_prints_the_link_that_opens_the_first_new_chapter_and_gives_the_readme_the_first(package, capsys):
    package.chapters = [[0, 1], [0, 1, 2, 3]]
    assert main(["release", str(package.folder), "--update", "--hub", "https://hub.example.org"]) == 0
    said = capsys.readouterr().out
    assert said.endswith(f"opens chapter 2:\n  {link_to('02_attention.ipynb')}\n")
    assert package.hub == [link_to("00_start_here.ipynb")]


def test_the_hub_may_stand_in_the_file_of_the_term_and_an_option_goes_before_it(package, capsys):
    Path("course.toml").write_text('[course]\nhub = "https://hub.example.org"\n', encoding="utf-8")
    assert main(["release", str(package.folder)]) == 0
    assert link_to("00_start_here.ipynb") in capsys.readouterr().out
    package.chapters = [[0], [0]]
    other = ["--hub", "https://other.example.org", "--repository", "https://git.example.org/a/b"]
    assert main(["release", str(package.folder), *other]) == 0
    assert (
        hub_link("https://other.example.org", "https://git.example.org/a/b", "week", FIRST) in capsys.readouterr().out
    )


def test_without_a_hub_no_link_is_printed_and_without_a_repository_it_is_said_how_to_get_one(package, capsys):
    assert main(["release", str(package.folder)]) == 0
    assert "learners on the hub" not in capsys.readouterr().out
    git(package.folder, "remote", "remove", "origin")
    assert origin(package.folder) == ("", "week")
    package.chapters = [[], [0]]
    assert main(["release", str(package.folder), "--hub", "https://hub.example.org"]) == 0
    assert "no link for the hub yet" in (said := capsys.readouterr().out)
    assert "--repository" in said
    assert package.hub == ["", ""]
    assert origin(package.folder.parent) == ("", "")


def test_a_wrong_address_is_said_before_anything_is_written(package, capsys):
    assert main(["release", str(package.folder), "--hub", "hub.example.org"]) == 2
    assert "write it as in https://hub.example.org" in capsys.readouterr().err
    assert package.hub == []


# ----------------------------------------------------------------------------------------------------------- the doctor
@pytest.mark.parametrize(
    ("limit", "sign", "words"),
    [
        (None, "• note   ", ["ada", "not known", "`start` copies"]),
        ("", "• note   ", ["ada", "not known"]),
        ("lots", "• note   ", ["ada", "not known"]),
        (str(2 * 2**30), "• note   ", ["ada", "2.1 GB", "a chapter and its exercises", "`start` copies"]),
        ("800000000", "• note   ", ["ada", "0.8 GB", "one open notebook"]),
        (str(512 * 2**20), "✗ PROBLEM", ["ada", "0.5 GB", "its kernel would die"]),
    ],
)
def test_on_a_hub_the_doctor_names_the_user_and_says_whether_the_memory_is_enough(monkeypatch, limit, sign, words):
    monkeypatch.setenv("JUPYTERHUB_USER", "ada")
    monkeypatch.delenv("MEM_LIMIT", raising=False)
    if limit is not None:
        monkeypatch.setenv("MEM_LIMIT", limit)
    (found,) = doctor.on_hub()
    assert found.sign == sign
    assert [word for word in words if word not in found.seen] == []
    assert ("mem_limit" in found.remedy) == (sign == "✗ PROBLEM")


def test_elsewhere_the_doctor_says_nothing_of_a_hub(monkeypatch):
    monkeypatch.delenv("JUPYTERHUB_USER", raising=False)
    monkeypatch.setenv("MEM_LIMIT", "1")
    assert list(doctor.on_hub()) == []


def test_on_a_hub_whose_course_is_not_the_learners_own_start_fills_a_folder_of_theirs(monkeypatch, tmp_path):
    monkeypatch.setattr(start, "COURSE", tmp_path)
    assert start.usual_folder() == tmp_path / "my"
    monkeypatch.setattr(start.os, "access", lambda path, mode: path != tmp_path)
    assert start.usual_folder() == Path("my")
    (tmp_path / "my").mkdir()
    assert start.usual_folder() == tmp_path / "my", "a volume, in a container"


def test_on_a_hub_start_opens_no_second_jupyterlab_even_from_a_notebooks_cell(monkeypatch, tmp_path, capsys):
    """A terminal there has JUPYTER_SERVER_ROOT, a kernel has not."""
    monkeypatch.delenv("JUPYTER_SERVER_ROOT", raising=False)
    monkeypatch.delenv("JUPYTERHUB_ROOT_DIR", raising=False)
    monkeypatch.setenv("JUPYTERHUB_USER", "ada")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(start.subprocess, "Popen", None)
    monkeypatch.setattr("course_lib.course.handout.hand_out", lambda course, folder: [])
    assert main(["start", "attention", "--folder", str(tmp_path / "course" / "my")]) == 0
    assert "open course/my/notebooks/02_attention.ipynb in its file browser" in capsys.readouterr().out


# --------------------------------------------------------------------------------------------------------- the samples
def test_the_sample_settings_can_be_read_and_agree():
    config = PyFileConfigLoader("jupyterhub_config.py", path=str(SAMPLES)).load_config()
    values = yaml.safe_load((SAMPLES / "values.yaml").read_text(encoding="utf-8"))
    one, many = config.Spawner, values["singleuser"]
    assert one.default_url == many["defaultUrl"]
    assert (one.mem_limit, one.cpu_limit) == (many["memory"]["limit"], many["cpu"]["limit"])
    spawner = SimpleNamespace(home_dir="/home/jovyan")
    own = {name: value(spawner) if callable(value) else value for name, value in one.environment.items()}
    assert own.keys() == many["extraEnv"].keys()
    for name in ("PYTHONPATH", "COURSE_DEVICE", "OMP_NUM_THREADS"):
        assert own[name] == many["extraEnv"][name]
    for name in ("JUPYTER_CONFIG_PATH", "PYTHONSTARTUP"):  # in the hub's environment there, in the learner's clone here
        inside = many["extraEnv"][name].removeprefix(f"{own['PYTHONPATH']}/")
        assert Path(own[name]) == ROOT / inside
        assert Path(own[name]).exists()
    assert config.JupyterHub.authenticator_class == values["hub"]["config"]["JupyterHub"]["authenticator_class"]


def test_the_sample_settings_give_what_start_gives():
    config = PyFileConfigLoader("jupyterhub_config.py", path=str(SAMPLES)).load_config()
    assert config.Spawner.environment["JUPYTER_CONFIG_PATH"] == str(start.SETTINGS)
    assert config.Spawner.environment["PYTHONSTARTUP"] == str(start.STARTUP)


def test_the_sample_settings_are_known_to_jupyterhub_and_to_its_servers():
    """A misspelt setting would be ignored."""
    pytest.importorskip("jupyterhub", reason="knows its own settings")
    from jupyter_client.manager import KernelManager
    from jupyterhub.app import JupyterHub
    from jupyterhub.auth import Authenticator
    from jupyterhub.spawner import Spawner

    config = PyFileConfigLoader("jupyterhub_config.py", path=str(SAMPLES)).load_config()
    (option,) = config.Spawner.args
    name, _, value = option.removeprefix("--KernelManager.").partition("=")
    assert value in KernelManager.class_traits()[name].values
    for kind in (JupyterHub, Authenticator, Spawner):
        assert set(config.pop(kind.__name__)) <= set(kind.class_trait_names(config=True))
    assert not config
