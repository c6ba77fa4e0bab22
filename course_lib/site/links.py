"""Check a built site: every internal link has a target, and no page fetches anything from another server."""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# The attributes whose address a browser fetches by itself. It fetches <a href> only if the reader clicks it.
FETCHED = {
    ("img", "src"),
    ("script", "src"),
    ("link", "href"),
    ("iframe", "src"),
    ("source", "src"),
    ("video", "src"),
    ("audio", "src"),
    ("embed", "src"),
    ("object", "data"),
    ("img", "srcset"),
    ("source", "srcset"),
    ("use", "href"),
    ("input", "src"),
    ("track", "src"),
    ("video", "poster"),
    ("image", "href"),
    ("base", "href"),
}
OUTSIDE = r"""["'`]?\s*((?:https?:)?//[^"'`)\s;]+)"""
IN_STYLES = re.compile(rf"(?:url\(\s*|@import\s+){OUTSIDE}", re.IGNORECASE)
IN_SCRIPTS = re.compile(rf"""(?:\bimport|\bfrom|\bfetch|\bimportScripts)\s*\(?\s*(?=["'`]){OUTSIDE}""")
INLINE = re.compile(r"<(style|script)\b[^>]*>(.*?)</\1>", re.DOTALL)
NOT_FETCHED_LINKS = {"canonical", "next", "prev", "search", "index", "author", "license"}


class _Page(HTMLParser):
    """Collect the anchors of a page, its links, and the addresses that a browser fetches for it."""

    def __init__(self, text: str):
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.fetched: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = {name: value for name, value in attrs if value}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        for name in ("href", "src", "data", "srcset", "poster"):
            if name not in values or values[name].startswith(("data:", "mailto:", "javascript:")):
                continue
            if (tag, name) in FETCHED and values.get("rel") not in NOT_FETCHED_LINKS:
                self.fetched.add(values[name])
            self.links.add(values[name])
        self.fetched |= set(IN_STYLES.findall(values.get("style", "")))


def problems(site: Path) -> list[str]:
    """Return the problems of a built site, one sentence each.

    In scripts, this finds only literal addresses in imports and fetches, not addresses computed at run time.
    """
    texts = {
        path: path.read_text(encoding="utf-8")
        for path in sorted(site.rglob("*"))
        if path.suffix in (".html", ".css", ".js")
    }
    pages = {path: _Page(text) for path, text in texts.items() if path.suffix == ".html"}
    found = []
    for path, text in texts.items():
        where = path.relative_to(site)
        for link in sorted(_outside(path, text, pages)):
            found.append(f"{where} fetches {link} from another server: ship it with the site")
        for link in sorted(pages[path].links) if path in pages else ():
            if problem := _dead(link, path, pages):
                found.append(f"{where} links to {link}: {problem}")
    return found


def _outside(path: Path, text: str, pages: dict[Path, _Page]) -> set[str]:
    """Return the addresses on other servers that a browser fetches when it opens this file."""
    if path.suffix == ".css":
        return set(IN_STYLES.findall(text))
    if path.suffix == ".js":
        return set(IN_SCRIPTS.findall(text))
    found = {link for link in pages[path].fetched if urlsplit(link).netloc}
    for kind, inside in INLINE.findall(text):
        found |= set((IN_STYLES if kind == "style" else IN_SCRIPTS).findall(inside))
    return found


def _dead(link: str, path: Path, pages: dict[Path, _Page]) -> str:
    """Return why a link on the page at `path` is broken; "" if it works or leads to another server."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return ""
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    target = target / "index.html" if target.is_dir() else target
    if not target.is_file():
        return "it does not exist"
    if parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
        told = "=" in parts.fragment and "location.hash" in target.read_text(encoding="utf-8")  # read by its script
        return "" if told else "there is no such place on that page"
    return ""
