"""The house stands as it was designed: who imports whom, what the top level holds, style, the README's commands."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tinycss2

import course_lib

ROOT = Path(__file__).parent.parent
LIBRARY = ROOT / "course_lib"


def room(path: Path) -> str:
    return path.relative_to(LIBRARY).parts[0].removesuffix(".py")


def tracked() -> list[str]:
    """The files that git knows."""
    if not (ROOT / ".git").exists():
        pytest.skip("a copy without git: what belongs to the repository cannot be told from what lies around")
    return subprocess.run(["git", "ls-files"], capture_output=True, text=True, cwd=ROOT, check=True).stdout.splitlines()


MODULES = sorted(path for path in LIBRARY.rglob("*.py") if path.name != "__init__.py" or path.parent != LIBRARY)


def test_the_map_in_the_packages_docstring_names_every_room():
    named = {name for names in re.findall(r"`([\w\s]+)`", course_lib.__doc__) for name in names.split()}
    assert {room(path) for path in MODULES} - {"__main__"} <= named
    assert named <= {room(path) for path in MODULES}


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


def test_importing_the_library_is_light():
    modules = [path.stem for path in LIBRARY.glob("*.py") if not path.stem.startswith("_")]
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
        "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", ".binder", ".devcontainer",
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
    assert all(re.fullmatch(r"[\w-]+==[\w.]+(; sys_platform .= '\w+')?", line) for line in packages)
    assert "torch==2.13.0" in packages


def test_committed_files_stay_small():
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, cwd=ROOT, check=True).stdout.split(
        "\n"
    )
    sizes = {name: (ROOT / name).stat().st_size for name in listed if name and (ROOT / name).exists()}
    assert sum(sizes.values()) < 40 * 2**20


def live_figures() -> list[tuple[str, str]]:
    """(chapter, function) of every function in the chapters' widgets that makes a live figure. Not those of an
    answer, which take the learner's function: they are tested where `explore` is."""
    found = []
    for path in sorted(LIBRARY.glob("chapters/*/widgets.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                if any("Callable" in ast.unparse(each) for each in node.args.args):
                    continue
                calls = [each.func for each in ast.walk(node) if isinstance(each, ast.Call)]
                if any(isinstance(name, ast.Name) and name.id == "LiveFigure" for name in calls):
                    found.append((path.parent.name, node.name))
    return found


@pytest.mark.parametrize(("chapter", "name"), live_figures())
def test_every_live_figure_is_drawn_by_a_test(chapter, name):
    tests = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests").glob("test_*.py")))
    remedy = f"add {name} of chapters/{chapter}/widgets.py to MAKERS in tests/test_viz_{chapter}.py"
    assert re.search(rf"\b{name}\b", tests), remedy


STYLES = [path for folder in ("course_lib", "web") for path in sorted((ROOT / folder).rglob("*.css"))]


@pytest.mark.parametrize("path", STYLES, ids=lambda path: path.name)
def test_a_style_has_no_part_that_a_browser_would_skip(path):
    def errors(nodes):
        for node in nodes:
            if node.type == "error":
                yield f"{path.name}, line {node.source_line}: {node.message}"
            elif node.type in ("qualified-rule", "at-rule") and node.content:
                yield from errors(
                    tinycss2.parse_blocks_contents(node.content, skip_comments=True, skip_whitespace=True)
                )

    text = path.read_text(encoding="utf-8")
    assert list(errors(tinycss2.parse_stylesheet(text, skip_comments=True, skip_whitespace=True))) == []
