"""The report of a run, as a table, a picture and a file."""

import json
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from course_lib.bench.rounds import Spread
from course_lib.course.files import ASSETS, read_json, write_whole


@dataclass(frozen=True)
class Row:
    """One ratio.

    what: our code that was timed. beside: the peer, or the limit of the machine. ratio: our speed divided by the
    peer's, or by the limit; in seconds with `sign` "s", in bytes with "B". least, most: the goal, if there is one.
    seconds: our median time for one `unit`. note: advice for judging the ratio.
    """

    part: str
    what: str
    beside: str
    ratio: Spread
    seconds: float = 0.0
    unit: str = ""
    least: float | None = None
    most: float | None = None
    note: str = ""
    sign: str = ""

    @property
    def goal(self) -> str:
        """Return the goal as text, or "" if there is none."""
        if self.least is not None:
            return f"≥ {self.least:g}"
        return "" if self.most is None else f"≤ {self.most:g}"

    @property
    def reached(self) -> bool | None:
        """Return whether the median reaches the goal, or None if there is no goal."""
        if self.least is not None:
            return self.ratio.median >= self.least
        return None if self.most is None else self.ratio.median <= self.most


@dataclass(frozen=True)
class Point:
    """One piece of work on the roofline: its minimum of flops and bytes, and the measured seconds."""

    name: str
    flops: float
    bytes: float
    seconds: float


@dataclass
class Report:
    """All rows of a run, and the machine that ran it. limits: "flops" and "bytes" per second of this machine."""

    machine: dict[str, str | int]
    rows: list[Row] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    limits: dict[str, float] = field(default_factory=dict)
    others: float = 0.0  # fraction of the cores that other programs used meanwhile

    @property
    def where(self) -> str:
        """Return the processor, its cores and threads, and the date, for a line next to the figures."""
        return "{processor}, {cores} cores, {threads} threads, {date}".format(**self.machine)

    def table(self, *parts: str) -> str:
        """Return the report as text: the machine, then a block of lines for each of these parts (by default, all)."""
        lines = textwrap.wrap(", ".join(f"{name} {value}" for name, value in self.machine.items()), 118)
        lines += [f"other programs took {self.others:.0%} of the processor meanwhile"]
        for part in parts or dict.fromkeys(row.part for row in self.rows):
            rows = [row for row in self.rows if row.part == part]
            lines += ["", part, *columns([HEAD, *map(_cells, rows)])]
            lines += [f"  * {row.what}: {row.note}" for row in rows if row.note]
        return "\n".join(lines)

    def write(self, path: str | Path) -> None:
        """Write the report as JSON; an interruption leaves no partial file."""
        data = asdict(self) | {"rows": [asdict(row) | {"reached": row.reached} for row in self.rows]}
        for row in data["rows"]:
            row["ratio"] = dict(zip(Spread._fields, row["ratio"]))
        text = json.dumps(data, indent=1, ensure_ascii=False) + "\n"
        write_whole(Path(path), lambda part: part.write_text(text, encoding="utf-8"))

    @classmethod
    def read(cls, path: str | Path) -> "Report":
        """Return the report that `write` wrote."""
        data = read_json(Path(path))
        for row in data["rows"]:
            row["ratio"] = Spread(**row["ratio"])
            del row["reached"]
        points = [Point(**point) for point in data["points"]]
        return cls(**data | {"rows": [Row(**row) for row in data["rows"]], "points": points})


RECORDED = ASSETS / "bench.json"


def recorded() -> Report:
    """Return the report that ships with the course; it states its machine and date."""
    return Report.read(RECORDED)


HEAD = ("what", "beside", "ratio", "quartiles", "goal", "", "ours")


def _cells(row: Row) -> tuple[str, ...]:
    reached = {None: "", True: "reached", False: "not reached"}[row.reached]
    taken = f"{duration(row.seconds)} {row.unit}".strip() if row.seconds else ""
    as_text = {"s": duration, "B": lambda number: f"{number / 1e6:,.0f} MB"}.get(row.sign, "{:.2f}".format)
    median, low, high = map(as_text, row.ratio)
    return row.what, row.beside, median, f"{low}–{high}", row.goal, reached, taken


def columns(lines: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines with their cells aligned in columns."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]


def duration(seconds: float) -> str:
    """Return a time as text, in a suitable unit and with three digits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if abs(seconds) >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"


TABLE_BEGIN, TABLE_END = "<!-- bench: written by `python -m course_lib refresh` -->", "<!-- end of bench -->"


# README.md replaces short names, which only the chapters explain, by plain words.
README_WORDS = {
    "transformers": "`transformers`",
    "nanoGPT-shaped": "a model built like nanoGPT’s",
    "the matmul rate": "large matrix products",
    "the bare weights": "only the products with the weights",
    "the bare weights by nn.Linear": "the same products by `nn.Linear`",
    "itself, float32 and eager": "ours in float32, not compiled",
    "itself in float32": "ours in float32",
}


def readme(text: str, report: Report) -> str:
    """Return README.md's text with a new table of the rows that have a goal; it leaves out the goals themselves.

    A row that compares our code with itself comes from a separate run, whose times differ from the rows above. Its time
    is left out, so that no reader divides times of two runs.
    Errors: ValueError if a line before or after the table is missing.
    """
    before, begin, rest = text.partition(TABLE_BEGIN)
    _, end, after = rest.partition(TABLE_END)
    if not (begin and end):
        raise ValueError(f"README.md needs the lines {TABLE_BEGIN!r} and {TABLE_END!r}: the figures go between them")
    lines = ["", "", "| | our time | compared with | ratio | quartiles |", "|---|---|---|---|---|"]
    for row in report.rows:
        if row.goal:
            what, beside, ratio, quartiles, *_, ours = _cells(row)
            ours = "" if beside.startswith("itself") else ours
            beside = README_WORDS.get(beside, f"`{beside}`" if beside.startswith("nn.") else beside)
            lines.append(f"| {row.part}: {what} | {ours} | {beside} | {ratio} | {quartiles} |")
    where = "{cores} cores of an {processor}, torch {torch}, {date}".format(**report.machine)
    lines += ["", f"Measured on {where}."]
    return before + begin + "\n".join([*lines, "", end]) + after


def in_words(points: Iterable[Point], limits: dict[str, float]) -> str:
    """Return a description of the `roofline` figure, for readers who cannot see it."""
    flops, bandwidth = limits["flops"] / 1e9, limits["bytes"] / 1e9
    words = [f"A roofline with a flat roof at {flops:.0f} GFLOP/s and a slope of {bandwidth:.0f} GB/s."]
    for point in points:
        rate, intensity = point.flops / point.seconds / 1e9, point.flops / point.bytes
        words.append(f"{point.name}: {rate:.0f} GFLOP/s at {intensity:.3g} FLOP per byte.")
    return " ".join(words)


def roofline(points: Iterable[Point], limits: dict[str, float]) -> Any:
    """Return the roofline figure: the speed of each piece of work, below the two limits of the machine.

    Work with little arithmetic per byte is on the left, below the slope of the memory bandwidth. Work with much
    arithmetic per byte is on the right, below the flat line of the matmul rate.

    Source: Williams, Waterman & Patterson 2009.
    """
    from course_lib.live.drawing import new_figure
    from course_lib.live.palette import BLUE, FONT, GREEN, INK, ORANGE, RED

    points = list(points)
    figure, axes = new_figure(7.5, 4.2)
    ridge = limits["flops"] / limits["bytes"]
    intensities = [point.flops / point.bytes for point in points]
    ends = [min([ridge, *intensities]) / 3, ridge, max([ridge, *intensities]) * 6]
    axes.plot(ends, [min(limits["flops"], x * limits["bytes"]) / 1e9 for x in ends], color=INK, linewidth=1.5)
    axes.annotate(
        f"operations, {limits['flops'] / 1e9:.0f} GFLOP/s",
        (ends[2], limits["flops"] / 1e9),
        (0, 5),
        textcoords="offset points",
        ha="right",
        fontsize=FONT - 1,
        color=INK,
    )
    middle = (ends[0] * ridge) ** 0.5
    axes.annotate(
        f"memory\nbandwidth,\n{limits['bytes'] / 1e9:.0f} GB/s",
        (middle, middle * limits["bytes"] / 1e9),
        (-8, 4),
        textcoords="offset points",
        ha="right",
        fontsize=FONT - 1,
        color=INK,
    )
    for i, (point, x) in enumerate(zip(points, intensities)):
        y = point.flops / point.seconds / 1e9
        color = (BLUE, RED, GREEN, ORANGE)[i % 4]
        axes.plot([x], [y], marker="osD^vP*X"[i % 8], markersize=9, linestyle="", color=color)
        left = x > ridge  # put names where there is room, and those of neighbours one above the other
        near = [
            other.flops / other.seconds / 1e9 - y
            for other, its in zip(points, intensities)
            if (its > ridge) == left and 1 / 1.3 < other.flops / other.seconds / 1e9 / y < 1.3
        ]
        away = 11 * ((min(near) < 0) - (max(near) > 0))
        axes.annotate(
            point.name,
            (x, y),
            (-10 if left else 10, away),
            textcoords="offset points",
            fontsize=FONT - 1,
            color=INK,
            ha="right" if left else "left",
            va="center",
        )
    axes.set(xscale="log", yscale="log", xlabel="arithmetic intensity (FLOP per byte)", ylabel="speed (GFLOP/s)")
    return figure
