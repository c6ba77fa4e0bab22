"""The rules of the speedrun: what a file must define, and what it may use."""

import ast
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

LONGEST = 20_000  # characters: too few for the weights of a trained model
WITHIN = 0.01  # of the entropy
ALLOWED = (
    "collections",
    "contextlib",
    "copy",
    "dataclasses",
    "functools",
    "itertools",
    "jaxtyping",
    "math",
    "torch",
    "typing",
    "course_lib.attention",
    "course_lib.blocks",
    "course_lib.config",
    "course_lib.embeddings",
    "course_lib.feed_forward",
    "course_lib.gpt",
    "course_lib.heads",
    "course_lib.layers",
    "course_lib.linear",
    "course_lib.masks",
    "course_lib.normalization",
    "course_lib.positions",
    "course_lib.sampling",
    "course_lib.training",
    "course_lib.chapters.your_gpt.workshop",
    "course_lib.grading.answers",
)
# With these a file could read others, or keep arithmetic from being counted.
HIDDEN = ("torch.compiler", "torch.hub", "torch.multiprocessing", "torch.package", "torch.utils")
FORBIDDEN_NAMES = {"__import__", "compile", "delattr", "eval", "exec", "globals", "input", "locals", "open", "setattr"}
FORBIDDEN_ATTRIBUTES = {
    *("compile", "compiler", "from_file", "hub", "jit", "library", "load", "multiprocessing", "numpy", "ops"),
    *("package", "serialization", "storage", "utils"),
}


class Refused(ValueError):
    """The file does not keep to the rules; the message says where, and what to do."""


@dataclass(frozen=True)
class Entry:
    """Hold a file that takes part: its path and its text."""

    path: Path
    source: str

    @classmethod
    def read(cls, path: str | Path) -> "Entry":
        """Read a file and check that it keeps to the rules.

        Errors: Refused if there is no such file, or it is too long, does not compile, uses something forbidden, or
            defines neither `train` nor `MyGPT` with `training_step`.
        """
        path = Path(path)
        if not path.is_file():
            raise Refused(f"there is no file {path}: name one with a function train(text, seed), or a my_gpt.py")
        source = path.read_text(encoding="utf-8")
        if len(source) > LONGEST:
            raise Refused(f"{path.name} has {len(source):,} characters; at most {LONGEST:,} are allowed")
        try:
            tree = ast.parse(source, str(path))
        except SyntaxError as error:
            raise Refused(f"{path.name}, line {error.lineno}: {error.msg}") from None
        for node in ast.walk(tree):
            if problem := _problem(node):
                raise Refused(f"{path.name}, line {node.lineno}: {problem}")
        defined = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
        if "train" not in defined and not {"MyGPT", "training_step"} <= defined:
            raise Refused(f"{path.name} has no function train(text, seed), and no MyGPT with a training_step")
        return cls(path, source)

    def number(self, *purpose: object) -> int:
        """Return a number of 40 bits for a purpose. The file cannot know it, because it depends on all of its text."""
        return int.from_bytes(sha256(repr((self.source, *purpose)).encode()).digest()[:5], "big")

    @property
    def name(self) -> str:
        """Return the file's name without its ending."""
        return self.path.stem

    def train(self) -> Callable[[Any, int], nn.Module]:
        """Run the file, and return its function train(text, seed) -> model."""
        module = ModuleType(self.name)
        exec(compile(self.source, str(self.path), "exec"), vars(module))
        return module.train if hasattr(module, "train") else _as_in_chapter_12(module)


def _problem(node: ast.AST) -> str:
    """Return what the rules forbid in this part of a file, or nothing."""
    if isinstance(node, ast.ImportFrom) and node.level:
        return "imports from its own folder; a file must stand alone"
    imported = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    if isinstance(node, ast.ImportFrom):
        imported = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
    for name in imported:
        if not _within(name, ALLOWED) or _within(name, HIDDEN):
            return f"imports {name}. Allowed are {', '.join(each for each in ALLOWED if '.' not in each)}, and the " + (
                "modules of course_lib that chapters 1 to 13 build"
            )
    if isinstance(node, ast.Name) and (node.id in FORBIDDEN_NAMES or _is_private(node.id)):
        return f"uses {node.id}, which could read files or keep arithmetic from being counted"
    if isinstance(node, ast.Attribute) and not _is_allowed(node):
        return f"uses .{node.attr}, which could read files or keep arithmetic from being counted"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "vars"):
        return f"uses {node.func.id}, which could reach what is forbidden: write `object.name`"
    return ""


def _is_allowed(node: ast.Attribute) -> bool:
    owner = node.value.id if isinstance(node.value, ast.Name) else getattr(node.value, "attr", "")
    if node.attr == "utils":
        return owner == "nn"  # nn.utils.clip_grad_norm_
    if node.attr.startswith("_") and not node.attr.startswith("__"):
        return owner in ("self", "cls")
    return node.attr not in FORBIDDEN_ATTRIBUTES and not _is_private(node.attr)


def _within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == each or name.startswith(f"{each}.") for each in packages)


def _is_private(name: str) -> bool:
    return name.startswith("__") and name not in ("__init__", "__name__")


def _as_in_chapter_12(module: ModuleType) -> Callable[[Any, int], nn.Module]:
    """Return train(text, seed) for a my_gpt.py: its model and step, with the shipped model's shape and recipe."""
    from course_lib.config import TransformerConfig
    from course_lib.training import learning_rate, make_optimizer

    def train(text: Any, seed: int) -> nn.Module:
        torch.manual_seed(seed)
        config = TransformerConfig(vocab_size=text.vocab_size, d_model=128, n_heads=4, n_layers=4, max_seq_len=96)
        model = module.MyGPT(config)
        optimizer = make_optimizer(model)
        batches = text.batches(24, 96, torch.Generator().manual_seed(seed))
        steps = getattr(module, "STEPS", 5000)
        for step in text.steps(steps):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step + 1, 3e-3, min(100, steps - 1), steps)
            module.training_step(model, *next(batches), optimizer)
        return model

    return train
