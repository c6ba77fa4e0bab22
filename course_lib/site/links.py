"""A built site, checked: every link to a page, a file or an anchor leads somewhere, and nothing is asked of another
server."""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What a browser fetches by itself, by element; a link that a reader may follow is no such thing.
FETCHED = {
    ("img", "src"), ("script", "src"), ("link", "href"), ("iframe", "src"), ("source", "src"), ("video", "src"),
    ("audio", "src"), ("embed", "src"), ("object", "data"), ("img", "srcset"), ("source", "srcset"), ("use", "href"),
    ("input", "src"), ("track", "src"), ("video", "poster"), ("image", "href"), ("base", "href"),
}  # fmt: skip
IN_STYLES = re.compile(r"""(?:url\(\s*|@import\s+)["']?\s*((?:https?:)?//[^"')\s;]+)""", re.IGNORECASE)
NOT_FETCHED_LINKS = {"canonical", "next", "prev", "search", "index", "author", "license"}


class _Page(HTMLParser):
    """The anchors of a page, what it links to, and what its reader's browser fetches."""

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
    """Return what is wrong with a built site, a sentence each; none if all is well.

    Scripts are read for addresses that they import or fetch in so many words; what they put together while they run,
    only a browser can tell.
    """
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        where = path.relative_to(site)
        for link in sorted(page.fetched):
            if urlsplit(link).netloc:
                found.append(f"{where} fetches {link} from another server: ship it with the site")
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                found.append(f"{where} links to {link}, which does not exist")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                found.append(f"{where} links to {link}: there is no such place on that page")
    for path in sorted(site.rglob("*.css")):
        for link in IN_STYLES.findall(path.read_text(encoding="utf-8")):
            found.append(f"{path.relative_to(site)} fetches {link} from another server: ship it with the site")
    for path in sorted(site.rglob("*.html")):
        for style in re.findall(r"<style\b.*?</style>", path.read_text(encoding="utf-8"), re.DOTALL):
            for link in IN_STYLES.findall(style):
                found.append(f"{path.relative_to(site)} fetches {link} from another server: ship it with the site")
    return found
