"""git, as tests use it: by itself, whatever the machine's settings are."""

import os
import subprocess
from pathlib import Path

import pytest


def git(folder: Path, *words: str) -> str:
    """What git says in a folder, as a teacher who has told it a name."""
    who = {f"GIT_{role}_{what}": "teacher@localhost" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True, env=os.environ | who)
    return done.stdout


def without_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has told git a name, and it must do."""
    for name in ("GLOBAL", "SYSTEM"):
        monkeypatch.setenv(f"GIT_CONFIG_{name}", os.devnull)
    for name in ("AUTHOR_NAME", "AUTHOR_EMAIL", "COMMITTER_NAME", "COMMITTER_EMAIL"):
        monkeypatch.delenv(f"GIT_{name}", raising=False)
    monkeypatch.setenv("EMAIL", "")
