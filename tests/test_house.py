"""The house stands as it was designed: who imports whom, what the top level holds, style, the README's commands."""

import ast
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

import course_lib

ROOT = Path(__file__).parent.parent
LIBRARY = ROOT / "course_lib"

# Floor of every room; a module imports from its own floor or below, and on floor 1 from earlier chapters alone.
FLOORS = {
    "arguments": 0,
    "checks": 0, "linear": 0, "files": 0, "formulas": 0, "contents": 0, "glossary": 0, "record": 0, "told": 0,
    "handout": 0, "pull": 0,
    "embeddings": 1, "positions": 1, "masks": 1, "cache": 1, "attention": 1,
    "heads": 1, "feed_forward": 1, "normalization": 1, "config": 2, "blocks": 2, "trace": 2, "gpt": 2,
    "encoder_decoder": 2, "counting": 2, "processes": 2,
    "gradients": 3, "checkpoints": 3, "training": 3, "beam": 3, "sampling": 3, "efficiency": 3,
    "pretrained": 3, "tinytown": 3, "hub": 3, "claims": 4, "live": 4, "grading": 5, "ladder": 5,
    "bench": 6, "lessons": 6, "chapters": 7, "classroom": 7, "room": 7, "site": 7, "cli": 8, "wheel": 8,
    "__main__": 8,
}  # fmt: skip


def room(path: Path) -> str:
    return path.relative_to(LIBRARY).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """The modules of course_lib that a file imports, as dotted names without the package's own."""
    package = ["course_lib", *path.relative_to(LIBRARY).parts[:-1]]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found |= {f"{module}.{alias.name}" for alias in node.names} | {module}
    return {name.removeprefix("course_lib.") for name in found if name.startswith("course_lib.")}


def tracked() -> list[str]:
    """The files that git knows."""
    if not (ROOT / ".git").exists():
        pytest.skip("a copy without git: what belongs to the repository cannot be told from what lies around")
    return subprocess.run(["git", "ls-files"], capture_output=True, text=True, cwd=ROOT, check=True).stdout.splitlines()


MODULES = sorted(path for path in LIBRARY.rglob("*.py") if path.name != "__init__.py" or path.parent != LIBRARY)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(LIBRARY)))
def test_nothing_imports_upward(path):
    own = FLOORS[room(path)]
    for name in imported(path):
        target = name.split(".")[0]
        assert FLOORS[target] <= own, f"{room(path)} (floor {own}) imports {target} (floor {FLOORS[target]})"
        if own == FLOORS[target] == 7:
            assert room_of(name) == room_of(module(path)), "they stand side by side: none needs another"


def module(path: Path) -> str:
    """The dotted name of a file, without the package's own: "claims.timing", and "claims" for its __init__."""
    return ".".join(path.relative_to(LIBRARY).with_suffix("").parts).removesuffix(".__init__")


def room_of(name: str) -> str:
    """The room of a dotted name: its first part, and of a chapter's the first two."""
    return ".".join(name.split(".")[: 2 if name.startswith("chapters.") else 1])


def test_the_map_in_the_packages_docstring_names_every_room():
    named = {name for names in re.findall(r"`([\w\s]+)`", course_lib.__doc__) for name in names.split()}
    assert {room(path) for path in MODULES} - {"__main__"} <= named
    assert named <= {room(path) for path in MODULES}


def lines_of_code(path: Path) -> int:
    """Lines that hold code: not blank, no comment, no docstring. Tables count, whatever they hold."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    aside = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node):
            aside |= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    code = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
            code |= set(range(token.start[0], token.end[0] + 1))
    return len(code - aside - {source.count("\n") + 1})  # the last is the end of the file


def test_a_module_that_learners_read_fits_on_two_screens_and_the_library_stays_small():
    read = [path for path in MODULES if FLOORS[room(path)] in (1, 2, 3) and path.name != "fetch.py"]  # of no chapter
    lines = {str(path.relative_to(LIBRARY)): lines_of_code(path) for path in read}
    most = {"sampling.py": 210, "tinytown/stories.py": 130}  # one chapter in one piece; one grammar
    assert {name: count for name, count in lines.items() if count > most.get(name, 125)} == {}
    # Eight families more are 150 lines: their switches, T5's relative positions, what their names and layouts become.
    # The format of llama2.c, in which the model that tells stories comes, is 80.
    # That every damaged or foreign file is named, and none ends in another error, is 40.
    assert sum(lines.values()) < 2730


def test_a_function_that_does_nothing_but_refuse_begins_with_require():
    """Such a function says so itself: its docstring begins with "Raise"."""
    refusing = {}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and (ast.get_docstring(node) or "").startswith("Raise "):
                refusing[f"{path.relative_to(LIBRARY)}: {node.name}"] = node.name.lstrip("_").startswith("require")
    assert len(refusing) > 30
    assert [where for where, named in refusing.items() if not named] == []
    shared = ast.parse((LIBRARY / "checks.py").read_text(encoding="utf-8"))
    names = {node.name for node in shared.body if isinstance(node, ast.FunctionDef)}
    assert {name for name in names if not name.startswith("require_")} == {"is_number", "is_truth", "occurs"}


def test_from_ids_to_logits_a_reader_passes_at_most_700_lines():
    path = ("embeddings", "attention", "heads", "feed_forward", "normalization", "blocks", "gpt")
    lines = {name: len((LIBRARY / f"{name}.py").read_text(encoding="utf-8").splitlines()) for name in path}
    assert sum(lines.values()) <= 700, lines


def test_importing_the_library_is_light():
    modules = [path.stem for path in LIBRARY.glob("*.py") if FLOORS.get(path.stem, 9) <= 3]
    code = "\n".join(
        [
            "import sys, course_lib",
            *(f"import course_lib.{name}" for name in modules),
            "print([name for name in ('matplotlib', 'ipywidgets', 'transformers', 'IPython') if name in sys.modules])",
        ]
    )
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert seen.stdout.strip() == "[]"


def test_the_top_level_holds_what_the_design_names_and_nothing_else():
    top = {name.split("/")[0] for name in tracked()}
    assert top <= {
        "README.md", "requirements.txt", "notebooks", "exercises", "solutions", "course_lib", "tests",
        "pyproject.toml", "LICENSE", "web", ".ci", ".gitignore", ".gitattributes", ".github", ".pre-commit-config.yaml",
        "CHANGELOG.md", "CITATION.cff", ".binder", ".devcontainer",
    }  # fmt: skip


def test_readme_commands_are_whole_and_ci_runs_the_second():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    install = r"python3 -m venv \.venv && \.venv/bin/python -m pip install -[cr] requirements\.txt -e \S+ && "
    make = install + r"\.venv/bin/python -m "
    assert re.search(make + "course_lib start$", readme, flags=re.MULTILINE)
    tests = re.findall(r"^python3 -m venv .*-m pytest$", readme, flags=re.MULTILINE)
    assert len(tests) == 1
    assert re.fullmatch(make + "pytest", tests[0])
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "README.md" in ci
    assert ci.index("ruff check") < ci.index('"$command"') < ci.index("--proof"), "what fails soonest comes first"


def test_readme_names_files_that_exist():
    for page in (ROOT / "README.md", ROOT / "solutions" / "README.md", ROOT / ".github" / "ELSEWHERE.md"):
        links = re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))
        missing = [link for link in links if not (page.parent / link).exists()]
        assert not missing, f"{page.name} links to {missing}"


def test_requirements_pin_every_package_exactly_and_nothing_else_so_that_pip_takes_them_as_constraints():
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    packages = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[\w-]+==[\w.]+", line) for line in packages)
    assert "torch==2.13.0" in packages


def test_committed_files_stay_small():
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, cwd=ROOT, check=True).stdout.split(
        "\n"
    )
    sizes = {name: (ROOT / name).stat().st_size for name in listed if name and (ROOT / name).exists()}
    assert sum(sizes.values()) < 40 * 2**20
