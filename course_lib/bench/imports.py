"""The time that `import course_lib` adds to the import of torch, measured in fresh processes."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from course_lib.bench.report import Row
from course_lib.bench.rounds import Contest, Spread, in_turns, spread

ENTRIES = {
    "the package": "import course_lib",
    "the library": "import course_lib.gpt, course_lib.sampling, course_lib.training, course_lib.pretrained",
    "check": "from course_lib.grading import check",
    "live figures": "from course_lib.chapters.attention import widgets",
}
MOST = 0.1  # seconds allowed for an entry
HOME = Path(__file__).resolve().parents[2]


def starter(code: str) -> Callable[[], object]:
    """Return a function that runs code in a fresh Python process, in the repository's folder."""
    return lambda: subprocess.run([sys.executable, "-c", code], check=True, cwd=HOME)


def added(contest: Contest, name: str, base: str) -> Spread:
    """Return the spread of the extra seconds that `name` takes compared with `base`, over the rounds."""
    return spread([own - other for own, other in zip(contest.seconds[name], contest.seconds[base], strict=True)])


def measure(rounds: int) -> Iterator[Row]:
    """Measure every entry. A row's ratio is the time that the entry adds to `import torch`, in seconds."""
    contestants = {"torch": starter("import torch")}
    contestants |= {name: starter(f"import torch; {code}") for name, code in ENTRIES.items()}
    contest = in_turns(contestants, rounds, "imports")
    for name in ENTRIES:
        most = MOST if name in ("the package", "the library") else None
        note = f"{ENTRIES[name]}; what it adds"
        yield Row(
            "import",
            name,
            "import torch",
            added(contest, name, "torch"),
            contest.of(name),
            most=most,
            note=note,
            sign="s",
        )
