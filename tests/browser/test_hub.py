"""Two learners on a JupyterHub: nbgitpuller's link brings them a release, and the next one, and their work stays."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import nbformat
import pytest

from course_lib.course.hub_link import hub_link
from tests.browser.lab import CHROMIUMS, IDLE, chromium, menu, run_all, save
from tests.live_in_browser import ROOT, _free_port
from tests.with_git import git

CONFIGURATION = ROOT / ".github" / "hub" / "jupyterhub_config.py"
FIRST = "notebooks/00_start_here.ipynb"
PROXY = "configurable-http-proxy"  # JupyterHub's, from npm


def proxy() -> str | None:
    """The path of the proxy: where .ci/run installs it, or on the PATH."""
    return shutil.which(PROXY, path=Path(sys.prefix) / "proxy" / "node_modules" / ".bin") or shutil.which(PROXY)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    """A released package as a repository: what a link of nbgitpuller brings."""
    folder = tmp_path_factory.mktemp("teacher") / "course"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    return folder


def write(path: Path, *sources: str) -> None:
    cells = [nbformat.v4.new_code_cell(source, id=f"cell-{i}") for i, source in enumerate(sources)]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), path)


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "A week")


@pytest.fixture(scope="module")
def homes():
    """The folder of the hub's users: of a short name, because the path of a kernel's socket has 107 signs at most."""
    with tempfile.TemporaryDirectory(prefix="hub-") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def hub(tmp_path_factory, homes):
    """A JupyterHub with the sample's settings on free ports: its address."""
    pytest.importorskip("jupyterhub", reason="the test on a hub needs jupyterhub")
    pytest.importorskip("nbgitpuller", reason="the test on a hub needs nbgitpuller")
    if proxy() is None:
        pytest.skip(f"the test on a hub needs JupyterHub's proxy: npm install --prefix {sys.prefix}/proxy {PROXY}")
    address, inner, api = (f"http://127.0.0.1:{_free_port()}" for _ in range(3))
    command = [
        *(sys.executable, "-m", "jupyterhub", "--config", str(CONFIGURATION)),
        *(f"--JupyterHub.bind_url={address}", f"--JupyterHub.hub_bind_url={inner}", "--JupyterHub.db_url=sqlite://"),
        *(f"--ConfigurableHTTPProxy.api_url={api}", f"--ConfigurableHTTPProxy.command={proxy()}"),
        f"--SimpleLocalProcessSpawner.home_dir_template={homes}/{{username}}",
        "--Spawner.args=['--KernelManager.transport=ipc', '--allow-root']",  # as there, also for root
        *("--Spawner.start_timeout=600", "--Spawner.http_timeout=600"),
    ]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)}
    where = tmp_path_factory.mktemp("hub")  # for its secret and the proxy's process id
    with subprocess.Popen(command, cwd=where, env=environment, stderr=subprocess.PIPE, text=True) as process:
        log = []
        try:
            for line in process.stderr:
                log.append(line)
                if "JupyterHub is now running" in line:
                    break
            else:
                pytest.fail("".join(log))
            reader = threading.Thread(target=log.extend, args=[process.stderr])  # a full pipe would stop the hub
            reader.start()
            yield address
            process.terminate()
            reader.join()
        finally:
            print("".join(log))  # pytest shows it if a test fails
            process.terminate()


@pytest.fixture(scope="module")
def browser():
    pytest.importorskip("playwright.sync_api", reason="the tests in a browser need playwright")
    from playwright.sync_api import sync_playwright

    if chromium() is None:
        pytest.skip(f"the tests in a browser need one of {', '.join(CHROMIUMS)} on the PATH")
    with (
        sync_playwright() as play,
        contextlib.closing(
            play.chromium.launch(executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"])
        ) as browser,
    ):
        yield browser


def follow(page, link: str, name: str = "") -> None:
    """Follow the link, and log in if it is a learner's first time."""
    page.goto(link)
    if name:
        page.locator("#username_input").fill(name)
        page.locator("#password_input").fill("any")
        page.locator("#login_submit").click(no_wait_after=True)


def opened(page, sockets: list[str]) -> None:
    """Wait until JupyterLab shows the notebook with a kernel, to which a socket leads."""
    page.locator(".lm-DockPanel-tabBar .lm-TabBar-tabLabel", has_text=Path(FIRST).name).wait_for()
    while not any("/api/kernels/" in socket for socket in sockets):
        page.wait_for_event("websocket")
    page.wait_for_function(IDLE)


def test_two_learners_get_a_release_and_the_next_and_their_work_stays(hub, homes, browser, teacher):
    link = hub_link(hub, f"file://{teacher}", "main", FIRST)
    (teacher / "notebooks").mkdir()
    (teacher / "week.py").write_text("NUMBER = 1\n", encoding="utf-8")
    week, answer, example = "import week\nprint('week', week.NUMBER)", "answer = ...", "print('an example')"
    write(teacher / FIRST, week, answer, "1 + 1", example)
    (teacher / "notebooks" / "glossary.md").write_text("A term.\n", encoding="utf-8")
    commit(teacher)

    pages = {name: browser.new_context().new_page() for name in ("ada", "ben")}
    sockets = {name: [] for name in pages}
    for name, page in pages.items():  # both servers start at the same time
        page.set_default_timeout(120_000)
        page.on("websocket", lambda socket, to=sockets[name]: to.append(socket.url))
        follow(page, link, name)
    saved = {}
    for name, page in pages.items():
        opened(page, sockets[name])
        if name == "ada":
            page.locator(".jp-CodeCell .cm-content").nth(1).fill("answer = 42")
        run_all(page)
        save(page)
        saved[name] = (homes / name / "course" / FIRST).read_bytes()
        assert "week 1" in page.locator(".jp-OutputArea-output").first.inner_text()
    (homes / "ben" / "course" / "notebooks" / "mine.md").write_text("my notes", encoding="utf-8")

    (teacher / "week.py").write_text("NUMBER = 2\n", encoding="utf-8")
    write(teacher / FIRST, week, answer, "1 + 1", example, "print('new')")
    write(teacher / "notebooks" / "01_embeddings.ipynb", "2 + 2")
    (teacher / "notebooks" / "glossary.md").unlink()
    commit(teacher)
    for name, page in pages.items():  # the next day
        with page.expect_response(lambda answer: answer.request.method == "DELETE"):
            menu(page, "Kernel", "Shut Down Kernel")
        sockets[name].clear()
        follow(page, link)
    for name, page in pages.items():
        opened(page, sockets[name])
        clone = homes / name / "course"
        assert git(clone, "ls-files", "--unmerged") == ""
        commits = git(clone, "log", "--format=%H", "--", FIRST).split()
        assert saved[name] in [git(clone, "show", f"{each}:{FIRST}").encode() for each in commits], "as it was saved"
        sources = [cell.source for cell in nbformat.read(clone / FIRST, as_version=4).cells]
        assert sources == [week, "answer = 42" if name == "ada" else answer, "1 + 1", example, "print('new')"]
        new = "notebooks/01_embeddings.ipynb"
        assert (clone / new).read_bytes() == (teacher / new).read_bytes()
        assert not (clone / "notebooks" / "glossary.md").exists()
        run_all(page)
        said = page.locator(".jp-OutputArea-output").all_inner_texts()
        assert (said[0].strip(), said[-1].strip()) == ("week 2", "new"), "the release brings the library, too"
    assert (homes / "ben" / "course" / "notebooks" / "mine.md").read_text(encoding="utf-8") == "my notes"
