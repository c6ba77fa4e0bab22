"""What a built site needs so that its pages can be found, shared and cited.

Each page gets a description, tags for previews, and structured data. Everything that needs an absolute address (the
canonical address, the pictures of previews, `sitemap.xml`, `feed.xml`, `404.html`) is there only if the course has one:
see `about`.
"""

import html
import json
import os
import re
import subprocess
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from course_lib.claims import Experiment, Finding, in_order, recorded
from course_lib.course.contents import CHAPTERS
from course_lib.site.about import Course
from course_lib.site.cards import Card, draw_cards

TITLE = re.compile(r"<title>(.*?)</title>", re.DOTALL)
SECOND_VIEWPORT = (
    '<meta name="viewport" content="width=device-width, initial-scale=1" />'  # docutils'; the theme has one
)
HIDDEN = ("search.html", "genindex.html", "404.html")  # no search engine should show these pages
CARDS = "cards"  # the folder of the pictures
ATOM, SITEMAP = "http://www.w3.org/2005/Atom", "http://www.sitemaps.org/schemas/sitemap/0.9"
LICENCES = ("https://opensource.org/license/mit", "https://creativecommons.org/licenses/by/4.0/")
GLASS = "A language model that runs in your browser. Open each of its heads and units, remove it, and see what changes."
LOST = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<title>This page does not exist</title>
<style>:root {{ color-scheme: light dark; }}
body {{ font: 1.1rem/1.6 sans-serif; margin: 4rem auto; max-width: 36em; padding: 0 1em; }}</style>
</head>
<body>
<h1>This page does not exist</h1>
<p>The address may have a typing error, or the page may have moved.</p>
<ul>
<li><a href="{home}">The chapters of {title}</a></li>
<li><a href="{home}claims/">The claims</a></li>
<li><a href="{home}search.html">Search the course</a></li>
</ul>
</body>
</html>
"""


@dataclass(frozen=True)
class Page:
    """What is said about a page to those who do not see it.

    title, description: plain text. card: its picture. kind: what the page is, for structured data; "" for none.
    more: further fields of its structured data.
    """

    title: str
    description: str
    card: Card
    kind: str = ""
    more: dict[str, Any] = field(default_factory=dict)


def share(site: Path, course: Course, root: Path, before: Path) -> None:
    """Add to the built site all that this module describes.

    Args:
        root: the repository, for the dates of the claims and `CITATION.cff`.
        before: the site that was built the last time, which may be missing; its pictures are used again.
    """
    (site / "CITATION.cff").write_bytes((root / "CITATION.cff").read_bytes())
    if course.home:
        (site / "404.html").write_text(
            LOST.format(home=html.escape(course.home), title=html.escape(course.title)), encoding="utf-8"
        )
    known = known_pages(course)
    shown = {path: _page(path, known, course, site) for path in html_pages(site)}
    for path, page in shown.items():
        file = site / path
        file.write_text(with_head(file.read_text(encoding="utf-8"), head(path, page, course)), encoding="utf-8")
    (site / "robots.txt").write_text(robots(course), encoding="utf-8")
    if course.home:
        (site / CARDS).mkdir(exist_ok=True)
        draw_cards((page.card for page in shown.values()), site / CARDS, before / CARDS)
        (site / "sitemap.xml").write_bytes(sitemap([path for path in shown if path not in HIDDEN], course))
        (site / "feed.xml").write_bytes(feed(course, root))


def html_pages(site: Path) -> list[str]:
    """Return the paths of all pages of a built site, relative to it. Sphinx's own parts of pages are left out."""
    paths = (path.relative_to(site) for path in sorted(site.rglob("*.html")))
    return [path.as_posix() for path in paths if path.parts[0] not in ("_static", "mathjax")]


# ------------------------------------------------------------------------------------------------------ what pages say
def known_pages(course: Course) -> dict[str, Page]:
    """Return path -> what is said about it: first page, chapters, exercises, claims, their list and the glossary."""
    pages = {"index.html": Page(course.title, course.abstract, general_card(course), "course")}
    for chapter in CHAPTERS:
        name = chapter.notebook.replace(".ipynb", ".html")
        promise = _sentence(chapter.promise)
        card = Card(f"{course.title} · chapter {chapter.number}", chapter.title, promise)
        about = {"position": chapter.number, "timeRequired": f"PT{chapter.minutes}M"}
        title = f"{chapter.number} · {chapter.title}"
        pages[f"notebooks/{name}"] = Page(title, promise, card, "chapter", about)
        solve = f"Exercises on chapter {chapter.number}, {chapter.title}. {promise}"
        pages[f"exercises/{name}"] = Page(f"Exercises: {chapter.title}", solve, card, "exercises")
    findings = recorded()
    told = [(each, findings[each.id]) for each in in_order() if each.id in findings]
    for each, finding in told:
        about = {"citation": each.source.link}
        pages[f"claims/{each.id}.html"] = Page(
            each.stated, verdict_sentence(finding), claim_card(each, finding, course), "measured claim", about
        )
    listed = f"{len(told)} popular claims about Transformers, each tested against a control, with the numbers."
    pages["claims/index.html"] = Page("The claims", listed, general_card(course), "list of claims")
    terms = "The terms of the course, each with its meaning and the section that introduces it."
    pages["notebooks/glossary.html"] = Page("Glossary", terms, general_card(course), "glossary")
    return pages


def verdict_sentence(finding: Finding) -> str:
    """Return the verdict on a claim and the reason for it, such as "Depends. It depends on the initialization …"."""
    return f"{_sentence(finding.verdict)} {finding.because}"


def general_card(course: Course) -> Card:
    """Return the card of all pages that have none of their own."""
    return Card("A free course with code, exercises and measurements", course.title, course.abstract)


def claim_card(experiment: Experiment, finding: Finding, course: Course) -> Card:
    """Return the card of a claim."""
    above = f"{course.title} · chapter {experiment.chapter}"
    return Card(above, experiment.stated, experiment.by, finding.verdict)


def _page(path: str, known: dict[str, Page], course: Course, site: Path) -> Page:
    """Return what is said about any page: a page that is not known is a glass model, or has no content of its own."""
    if path in known:
        return known[path]
    text = (site / path).read_text(encoding="utf-8")
    found = TITLE.search(text)
    if not found:
        raise ValueError(f"{path} has no <title>, so there is no place for its description")
    title = html.unescape(re.sub(r"<[^>]*>", "", found[1])).strip()
    glass = '<main class="glass">' in text
    description = GLASS if glass else f"{title}. {course.abstract}"
    return Page(title, description, general_card(course), "interactive model" if glass else "")


def _sentence(text: str) -> str:
    """Return the text with a capital letter first and a full stop last."""
    return text[0].upper() + text[1:].rstrip(".") + "."


# ------------------------------------------------------------------------------------------------------------ the head
def head(path: str, page: Page, course: Course) -> str:
    """Return the tags for the head of a page: description, canonical address, preview, feed and structured data."""
    address = course.page(path) if path not in HIDDEN else ""
    kind = "website" if path == "index.html" else "article"
    tags = [
        _meta("name", "description", page.description),
        _meta("property", "og:type", kind),
        _meta("property", "og:site_name", course.title),
        _meta("property", "og:title", page.title),
        _meta("property", "og:description", page.description),
        _meta("name", "twitter:title", page.title),
        _meta("name", "twitter:description", page.description),
    ]
    if path in HIDDEN:
        tags.append(_meta("name", "robots", "noindex"))
    if address:
        picture = course.page(f"{CARDS}/{page.card.file}")
        tags += [
            f'<link rel="canonical" href="{html.escape(address)}">',
            _meta("property", "og:url", address),
            _meta("property", "og:image", picture),
            _meta("property", "og:image:width", "1200"),
            _meta("property", "og:image:height", "630"),
            _meta("property", "og:image:alt", page.card.alt),
            _meta("name", "twitter:image", picture),
            _meta("name", "twitter:image:alt", page.card.alt),
        ]
    tags.append(_meta("name", "twitter:card", "summary_large_image" if address else "summary"))
    if course.home and path not in HIDDEN:
        there = os.path.relpath("feed.xml", os.path.dirname(path) or ".")
        tags.append(f'<link rel="alternate" type="application/atom+xml" title="The claims" href="{there}">')
    if page.kind:
        told = json.dumps(structured(path, page, course), ensure_ascii=False).replace("<", "\\u003c")
        tags.append(f'<script type="application/ld+json">{told}</script>')
    return "\n".join(tags)


def _meta(by: str, name: str, content: str) -> str:
    return f'<meta {by}="{name}" content="{html.escape(content)}">'


def with_head(text: str, tags: str) -> str:
    """Return a page with these tags after its title."""
    before, end, after = text.replace(SECOND_VIEWPORT, "", 1).partition("</title>")
    return f"{before}{end}\n{tags}{after}"


def structured(path: str, page: Page, course: Course) -> dict[str, Any]:
    """Return a page's data as schema.org defines it: a Course for the first page, a LearningResource for any other."""
    whole: dict[str, Any] = {"@type": "Course", "name": course.title, "description": course.abstract}
    whole["provider"] = {"@type": "Organization", "name": course.authors}
    if course.home:
        whole["url"] = course.home
    common: dict[str, Any] = {"inLanguage": "en", "isAccessibleForFree": True, "license": list(LICENCES)}
    if page.kind == "course":
        own = {
            "author": whole["provider"],
            "keywords": list(course.keywords),
            "timeRequired": f"PT{sum(chapter.minutes for chapter in CHAPTERS)}M",
            "hasPart": [
                {"@type": "LearningResource", "name": each.title, "position": each.number} for each in CHAPTERS
            ],
        }
        if course.source:
            own["sameAs"] = course.source
        return {"@context": "https://schema.org", **whole, **common, **own}
    found = {"@type": "LearningResource", "name": page.title, "description": page.description}
    found["learningResourceType"] = page.kind
    if course.home:
        found["url"] = course.page(path)
    return {"@context": "https://schema.org", **found, **common, **page.more, "isPartOf": whole}


# --------------------------------------------------------------------------------------------------- files for programs
def robots(course: Course) -> str:
    """Return `robots.txt`. Programs look for it only at the top of a host, so below that it does nothing."""
    return "User-agent: *\nAllow: /\n" + (f"Sitemap: {course.page('sitemap.xml')}\n" if course.home else "")


def sitemap(paths: list[str], course: Course) -> bytes:
    """Return `sitemap.xml`, which lists the addresses of these pages."""
    top = ElementTree.Element("urlset", xmlns=SITEMAP)
    for path in paths:
        _child(_child(top, "url"), "loc", course.page(path))
    return _as_xml(top)


def feed(course: Course, root: Path) -> bytes:
    """Return an Atom feed of the claims: title, verdict, measurement and the date of the last change.

    A claim's date is that of the last commit to its chapter's findings, or that of the file outside a git repository.
    """
    findings = recorded()
    dates = {chapter.number: _changed(root, f"course_lib/chapters/{chapter.slug}/claims.json") for chapter in CHAPTERS}
    told = [each for each in in_order() if each.id in findings]
    top = ElementTree.Element("feed", xmlns=ATOM)
    _child(top, "id", course.page("feed.xml"))
    _child(top, "title", f"{course.title}: the claims")
    _child(top, "subtitle", "Popular claims about Transformers, each measured against a control")
    _child(top, "updated", max(dates[each.chapter] for each in told).isoformat())
    _child(_child(top, "author"), "name", course.authors)
    _child(top, "link", rel="self", type="application/atom+xml", href=course.page("feed.xml"))
    _child(top, "link", rel="alternate", type="text/html", href=course.page("claims/index.html"))
    for each in told:
        finding, address = findings[each.id], course.page(f"claims/{each.id}.html")
        entry = _child(top, "entry")
        _child(entry, "id", address)
        _child(entry, "title", f"{each.stated.removesuffix('.')} ({finding.verdict})")
        _child(entry, "updated", dates[each.chapter].isoformat())
        _child(entry, "link", rel="alternate", type="text/html", href=address)
        _child(entry, "category", term=finding.verdict)
        measured = finding.measured.removesuffix(".")
        _child(entry, "summary", f"Verdict: {finding.verdict}. Measured: {measured}. {finding.because}")
    return _as_xml(top)


def _changed(root: Path, path: str) -> datetime:
    """Return when a file was last changed."""
    with_git = subprocess.run(
        ["git", "log", "-1", "--format=%cI", "--", path], cwd=root, capture_output=True, text=True, check=False
    )
    if with_git.returncode == 0 and (said := with_git.stdout.strip()):
        return datetime.fromisoformat(said).astimezone(UTC)
    file = root / path
    return datetime.fromtimestamp(file.stat().st_mtime if file.is_file() else 0, UTC).replace(microsecond=0)


def _child(parent: ElementTree.Element, tag: str, text: str = "", **attributes: str) -> ElementTree.Element:
    found = ElementTree.SubElement(parent, tag, attributes)
    found.text = text or None
    return found


def _as_xml(top: ElementTree.Element) -> bytes:
    ElementTree.indent(top)
    return ElementTree.tostring(top, encoding="utf-8", xml_declaration=True)
