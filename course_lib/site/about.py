"""What the pages say about the course itself: who wrote it, how to cite it, and the addresses that lead to it.

All addresses follow from `[project.urls]` in `pyproject.toml`. If it is missing, the pages link only to each other, and
`missing` says what visitors lose. The names and the title come from `CITATION.cff`.
"""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

GITHUB = "https://github.com/"
ELSEWHERE = "elsewhere"  # the branch with the notebooks that `elsewhere` writes
HOME = ("homepage", "documentation")  # the labels under which [project.urls] has the address of the web edition


@dataclass(frozen=True)
class Course:
    """The course as its pages name it.

    repository: "owner/name" on GitHub; "" if unknown.
    home: the address of the web edition, which ends in "/"; "" if unknown.
    """

    title: str
    authors: str
    abstract: str
    keywords: tuple[str, ...] = ()
    repository: str = ""
    home: str = ""

    @property
    def source(self) -> str:
        """Return the address of the repository; "" if it is unknown."""
        return f"{GITHUB}{self.repository}" if self.repository else ""

    @property
    def archive(self) -> str:
        """Return the address of a ZIP file with all files of the course; "" if the repository is unknown."""
        return f"{self.source}/archive/refs/heads/main.zip" if self.repository else ""

    def page(self, path: str) -> str:
        """Return the address of a page of the web edition, such as "claims/index.html"; "" if the home is unknown."""
        if not self.home:
            return ""
        return self.home + quote(path.removesuffix("index.html") if path.rpartition("/")[2] == "index.html" else path)

    def cited(self, path: str = "index.html", part: str = "") -> str:
        """Return the line with which to cite the course, or a part of it that is on the page `path`."""
        where = self.page(path) or self.source
        named = f"{part}. In: {self.title}" if part else self.title
        return f"{self.authors}: {named}." + (f" {where}" if where else "")


def course_of(root: Path) -> Course:
    """Return what `CITATION.cff` and `pyproject.toml` of the repository `root` say about the course."""
    import yaml

    said = yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))
    people = [
        each.get("name") or f"{each.get('given-names', '')} {each.get('family-names', '')}".strip()
        for each in said["authors"]
    ]
    repository = repository_of(root)
    home = _home(_urls(root), repository)
    keywords = tuple(said.get("keywords", ()))
    return Course(said["title"], ", ".join(people), said["abstract"].strip(), keywords, repository, home)


def missing(course: Course) -> str:
    """Return what `[project.urls]` leaves open and what visitors lose by it, in one line; "" if it has everything."""
    lost = []
    if not course.repository:
        lost.append("no link to the course, Colab, Kaggle or Binder")
    if not course.home:
        lost.append("no canonical address, preview picture, sitemap, feed or page for wrong addresses")
    if not lost:
        return ""
    line = f'Repository = "{GITHUB}OWNER/NAME"' if not course.repository else 'Homepage = "https://…"'
    return f"The pages have {', and '.join(lost)}. To add them, write {line} under [project.urls] in pyproject.toml."


def places(repository: str, path: str) -> dict[str, str]:
    """Return name -> address of each service that opens this notebook of a repository; empty without a repository."""
    if not repository:
        return {}
    there = f"{repository}/blob/{ELSEWHERE}/{path}"
    return {
        "Colab": f"https://colab.research.google.com/github/{there}",
        "Kaggle": f"https://www.kaggle.com/kernels/welcome?src={GITHUB}{there}",
        "Binder": f"https://mybinder.org/v2/gh/{repository}/main?urlpath=lab/tree/{path}",
    }


def repository_of(root: Path) -> str:
    """Return "owner/name" on GitHub; "" if `pyproject.toml` has no address there."""
    begins = re.compile(re.escape(GITHUB) + r"([\w.-]+/[\w.-]+)")
    found = next((match for url in _urls(root).values() if (match := begins.match(url))), None)
    return found[1].removesuffix(".git") if found else ""


def _urls(root: Path) -> dict[str, str]:
    """Return the addresses in `pyproject.toml`, label in small letters -> address."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {label.lower(): url for label, url in project.get("urls", {}).items()}


def _home(urls: dict[str, str], repository: str) -> str:
    """Return the address of the web edition: the one that is given, or where GitHub Pages publishes the repository."""
    for label in HOME:
        if (url := urls.get(label, "")) and not url.startswith(GITHUB):
            parts = urlsplit(url)
            if parts.scheme != "https" or not parts.netloc or parts.query or parts.fragment:
                raise ValueError(
                    f"[project.urls] has {url!r} as the {label}: write it as in https://example.org/course/"
                )
            return url.rstrip("/") + "/"
    if not repository:
        return ""
    owner, name = repository.split("/")
    site = f"https://{owner.lower()}.github.io/"
    return site if name.lower() == f"{owner.lower()}.github.io" else f"{site}{name}/"
