"""What the tests of reports share: a page as a strict browser reads it, and a small class that was graded for real."""

import re
from html.parser import HTMLParser
from pathlib import Path

from course_lib.classroom.graded_submission import GradedSubmission
from course_lib.classroom.report.pages import write_reports
from course_lib.grading import EXERCISES, grade
from course_lib.grading.result import Result

TITLES = {2: "Attention", 3: "Masks", 9: "The GPT model", 5: "Positions"}


ABOUT = {"sandbox": "bwrap", "version": "1.0"}


VOID = {"meta", "img", "wbr", "br", "hr", "link", "input", "base"}
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "javascript:alert(1)",
    "</title></style></pre><h1>mine</h1><!--",
    "&lt;b&gt; &#x3c;script&#62; &amp;amp; &nosuch;",
    "\N{RIGHT-TO-LEFT OVERRIDE}gpj.exe\N{RIGHT-TO-LEFT ISOLATE}",
    "nul\0 bell\a \x1b[31mred\x1b[0m \x1b]8;;http://a.example\x07link\x1b]8;;\x07 \x9b1m",
    "\ud800 half, \uffff none",
    "../../../etc/passwd",
    "]]>{{7*7}}<svg/onload=alert(1)>${x}",
    "`<b>code</b>` \r\n\t next line\u2028and next",
]


class Page(HTMLParser):
    """A page as a browser without mercy reads it: every element is closed, in order, and nothing else stands there."""

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict]] = []
        self.words: list[tuple[tuple[str, ...], str]] = []  # path, text
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert len({name for name, _ in attrs}) == len(attrs), f"<{tag}> has an attribute twice"
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        raise AssertionError(f"<{tag}/>: closed at once")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append((tuple(self.open), data))

    def handle_comment(self, data):
        raise AssertionError(f"a comment: {data}")

    def unknown_decl(self, data):
        raise AssertionError(f"a declaration: {data}")

    def text(self, within: str = "body") -> str:
        return "".join(data for path, data in self.words if within in path)

    def attributes(self, name: str) -> list[str]:
        return [attributes[name] for _, attributes in self.elements if name in attributes]

    @property
    def skeleton(self) -> list[tuple]:
        """Everything but what may hold text of others: link targets, labels, and the code in a sentence."""
        return [
            (tag, *((name, value if name not in ("href", "aria-label") else "") for name, value in attributes.items()))
            for tag, attributes in self.elements
            if tag not in ("code", "wbr")
        ]


def pages(marked, folder, titles=TITLES, about=ABOUT) -> dict[Path, Page]:
    paths = write_reports(marked, folder, titles=titles, about=about)
    return {path: Page(path.read_bytes().decode()) for path in paths}


def rows(page: Path, title: str) -> list[list[str]]:
    """The body of the table whose caption begins so, as cells of text."""
    html = page.read_text(encoding="utf-8")
    table = next(table for table in re.findall(r"<table.*?</table>", html, re.S) if f"<caption>{title}" in table)
    body = table.split("<tbody>")[1]
    found = [re.findall(r"<t[hd].*?</t[hd]>", row, re.S) for row in re.findall(r"<tr.*?</tr>", body, re.S)]
    return [[Page(cell).text("bdi") or Page(cell).text(cell[1:3]) for cell in cells] for cells in found]


def answers(*chosen) -> tuple[Result, ...]:
    return tuple(grade(exercise_id, answer, 7) for exercise_id, answer in chosen)


def small_class() -> list[GradedSubmission]:
    """Three learners, graded for real: right answers, known mistakes, a wrong option, and gaps."""

    def right(exercise_id):
        return exercise_id, EXERCISES[exercise_id].reference

    def wrong(exercise_id, number):
        return exercise_id, EXERCISES[exercise_id].misconceptions[number].wrong

    a, b, c, d = "attention.softmax", "attention.memory", "masks.causal", "masks.patterns"
    option = next(option.key for option in EXERCISES[d].options if not option.right)
    reflect = ("attention.why_scale", "word " * 30)
    return [
        GradedSubmission("Zoë", "1" * 64, answers(right(a), right(b), reflect, wrong(c, 0), (d, ...))),
        GradedSubmission(
            "Émile",
            "2" * 64,
            answers(wrong(a, 0), right(b), reflect, wrong(c, 0), (d, option)),
            ("Cell 3 fails.",),
            salvaged=("a.zip was packed <b>oddly</b>",),
        ),
        GradedSubmission("Ada", "3" * 64, answers(wrong(a, 3), (b, ...), (reflect[0], ...), (c, ...), (d, ...))),
    ]
