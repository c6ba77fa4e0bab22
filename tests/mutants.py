"""Mutants of the references: what a slip of one token makes of a right answer must not pass.

    python -m tests.mutants attention.softmax sampling.top_k      # some exercises, or whole chapters: attention
    python -m tests.mutants --all                                 # every code exercise and experiment: minutes

A reference and the functions of its module that it calls (of these the lines that run) are changed in one place at a
time with `ast`: operators, comparisons, constants, axes, signs, order of arguments, dropped statements, keywords and
method calls. Each mutant is graded like an answer. One that passes either behaves as the reference does on every legal
input, and then stands in EQUIVALENT with the reason, or shows a case that the exercise lacks.
"""

import argparse
import ast
import copy
import difflib
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from unittest import mock

import torch

from course_lib.grading import EXERCISES, Exercise, grade
from course_lib.grading.cases import prepare
from course_lib.grading.judge.call import call
from course_lib.grading.judge.limits import limited, undisturbed
from course_lib.grading.judge.trials import summed_up

SECONDS = 3.0  # of computing, for one mutant: most that take longer never end

LAST = "there are as many axes as the number says: it names the same axis"
DEFAULT = "this is the default"
SHAPE = "a mean is taken afterwards, whatever the shape"
SIZE = "the size is taken, whatever the sign"
BLOCKED = "softmax gives a blocked score 0 in any case, except where every score of a row is blocked"
GROWS = "the first block of keys broadcasts it to its shape"
ONE_ROW = "the text is one row: the first is the last"
SYMMETRIC = "the cosine of two vectors is the same in either order"

# (exercise, a part of the changed line, why no legal input shows the change)
EQUIVALENT = [
    *[(f"embeddings.{name}", ", dim=1)", LAST) for name in ("nearest", "analogy")],
    ("embeddings.nearest", "F.cosine_similarity(weight, weight[index])", DEFAULT),
    ("embeddings.analogy", "F.cosine_similarity(weight, target)", DEFAULT),
    ("embeddings.nearest", "F.cosine_similarity(weight[index], weight,", SYMMETRIC),
    ("embeddings.analogy", "F.cosine_similarity(target, weight,", SYMMETRIC),
    ("attention.scaled_dot_product", "masked_fill(blocked, 0.0)", BLOCKED),
    ("efficiency.online_softmax", "q.new_zeros(*q.shape[:0]", GROWS),
    ("efficiency.online_softmax", "q.new_full((*q.shape[:0], 1)", GROWS),
    ("efficiency.quantize", "largest / 127, 2.0)", "of a row of zeros any scale will do"),
    ("efficiency.quantize", "W.abs().amax(dim=-1)", LAST),
    *[("efficiency.speculative", part, LAST) for part in ("softmax(dim=0)", "softmax(dim=1)", "[None]], dim=-1)")],
    *[
        ("efficiency.speculative", part, ONE_ROW)
        for part in ("target(guessed)[-1, T", "draft(guessed)[-1, -1]", "guessed[-1, T + n]")
    ],
    ("efficiency.speculative", "<= p[n, guessed", "no number that is drawn is p / q exactly"),
    ("attention.self_attention", "k.transpose(1, -1)", LAST),
    ("attention.self_attention", "masked_fill(blocked, 0.0)", BLOCKED),
    ("attention.worked_example", ".softmax(dim=1)", LAST),
    ("attention.score_variance", ".sum(dim=1)", LAST),
    ("attention.who_is_it", ".softmax(dim=-1)", LAST),
    ("counting.memory", "mixed_precision=True", "both recipes take 10 bytes, which is the point of the exercise"),
    ("counting.memory", "2 / 1 *", "divided by 1 or multiplied"),
    ("sampling.top_k", "logits.topk(k).values", DEFAULT),
    ("sampling.top_p", ".sort(descending=True)", DEFAULT),
    ("sampling.top_p", "sum_before > p", "rounding decides whether a sum equals p"),
    *[
        (f"sampling.{name}", part, LAST)
        for name in ("next_token", "generate")
        for part in (".softmax(1)", ".squeeze(1)")
    ],
    ("sampling.generate", "[:, None]], -1)", LAST),
    ("sampling.compare", "see(model, text[:, :-1]) * temperature", "the temperature of the yardstick is 1"),
    ("sampling.compare", "text.shape[1] + 1)], -2)", LAST),
    ("sampling.compare", "text.shape[1] + 2)], 1)", "nobody gathers from the output that is one too many"),
    ("sampling.compare", "log_probabilities(model, text)[:, start", DEFAULT),
    ("sampling.compare", "gather(-1, text[:, 1:, None])", SHAPE),
    ("positions.shift_matrix", "range(-2, d_model, 2)", "what it writes at −2 and −1, the last hand writes over"),
    *[
        ("positions.rotary", part, "x is float32 or float64: a product takes the finer dtype of the two")
        for part in ("(angle.cos(), ", ", angle.sin())")
    ],
    ("positions.equivariance", "plain, largest = (f(x), -1.0)", "no error is below 0"),
    ("positions.equivariance", "plain[:, order] - f(x[:, order])", SIZE),
    ("masks.leak_test", ">= 1e-05", "no output moves by exactly this much"),
    ("masks.leak_test", "(changed[:, place] - 1) % V", "that is another token, too"),
    ("masks.leak_test", "before - model(changed)", SIZE),
    ("your_gpt.parity", "(theirs[name] - yours[name]).abs()", SIZE),
    *[
        ("normalization.speed", f"torch.randn({rows}, width)", "a ratio of times: the rows are the answer's choice")
        for rows in (127, 129)
    ],
    ("training.cross_entropy", "logits.amax(1, ", LAST),
    ("training.cross_entropy", ".sum(1).log()", LAST),
    ("training.scaling_law", "1.5, 0.01)", "steps of 0.01 need no more digits than float32 has"),
    ("training.scaling_law", "2.5, 0.01,", "how far one tries is the answer's choice, above 1.5"),
    ("training.scaling_law", "factors[best, :, -1]", LAST),
    ("training.scaling_law", "sum(dim=(2, 1))", "a sum does not mind the order"),
    ("training.scaling_law", "above[:, None] - terms @ factors", SIZE),
    ("training.clip", "norm >= max_norm", "at equality the factor is 1"),
    ("training.clip", "g.square().sum()", "float32 adds up well enough"),
    ("training.muon", "A @ (2.0315 * A)", "the factors are powers of the same matrix, and a number"),
    ("training.learning_rate", "step >= total", "at the last step the cosine has come down to the floor"),
    *[("training.learning_rate", part, "a cosine is even") for part in ("(warmup - step)", "(warmup - total)")],
    ("heads.loop", "W_Q.shape[0]", "W_Q is square"),
    ("heads.loop", "k.transpose(1, -1)", LAST),
    ("heads.module", "masked_fill(~mask, 0.0)", BLOCKED),
    ("efficiency.quadratic", "y @ x", "a product does not mind the order"),
    ("efficiency.quadratic", "y + y.mean()", "x is centred: what is added to all of y does not show"),
    *[
        ("efficiency.quadratic", f"torch.randn(1, T, {width})", "the width is the answer's choice")
        for width in (15, 17)
    ],
    ("efficiency.rnn_or_attention", "other >= one", "no two times that are measured are equal"),
    ("normalization.speed", "(('layer', layer_norm), ('rms', rms_norm))", "either may be timed first"),
    *[("feed_forward.router", part, LAST) for part in ("softmax(dim=1)", "p.topk(k, dim=1)", "sum(dim=1, keepdim")],
    ("feed_forward.router", "p.topk(k)", DEFAULT),
    *[("pretrained.patch", f".gather(-1, {words}[:, None])", LAST) for words in ("answer", "other")],
    ("pretrained.patch", "ahead = last.gather(1, other", "both parts of the fraction change their sign"),
    ("pretrained.patch", "return seen[-1]", "the block runs once"),
    ("pretrained.patch", "(dropped) of handle.remove()", "the first hook only stores what nobody reads any more"),
    ("pretrained.patch", "x = x", "the output may be changed in place"),
    ("assistant.group_advantage", "dim=-1, keepdim=True", LAST),
    ("assistant.frontier", "(('policy', policy), ('best_of_n', best_of_n))", "either may be measured first"),
    *[("assistant.frontier", f"(0.001, {high})", "no β that is found is so high") for high in ("9999.0", "10001.0")],
    *[("assistant.frontier", f"range({rounds})", "the last halvings change no digit") for rounds in (59, 61)],
    ("assistant.frontier", ">= nats", "no two divergences are equal to the last digit"),
    *[("assistant.frontier", part, "a product does not mind the order") for part in ("(reward @ best", "(reward @ p)")],
]


@dataclass(frozen=True)
class Mutant:
    """One change. before, after: the line that differs."""

    function: str
    line: int
    before: str
    after: str
    answer: Callable


# --- what is changed --------------------------------------------------------------------------------------------------

SWAPS = {
    ast.Add: [ast.Sub],
    ast.Sub: [ast.Add],
    ast.Mult: [ast.Div],
    ast.Div: [ast.Mult],
    ast.FloorDiv: [ast.Mult],
    ast.Mod: [ast.FloorDiv],
    ast.Pow: [ast.Mult],
    ast.MatMult: [ast.Mult],
    ast.BitAnd: [ast.BitOr],
    ast.BitOr: [ast.BitAnd],
    ast.Lt: [ast.LtE, ast.Gt],
    ast.LtE: [ast.Lt, ast.GtE],
    ast.Gt: [ast.GtE, ast.Lt],
    ast.GtE: [ast.Gt, ast.LtE],
    ast.Eq: [ast.NotEq],
    ast.NotEq: [ast.Eq],
    ast.Is: [ast.IsNot],
    ast.IsNot: [ast.Is],
    ast.In: [ast.NotIn],
    ast.NotIn: [ast.In],
    ast.And: [ast.Or],
    ast.Or: [ast.And],
}
SYMMETRIC = ("transpose", "swapaxes", "max", "min", "maximum", "minimum", "equal", "allclose")  # in their arguments
SAME_VALUE = ("item", "contiguous", "tolist", "detach")  # what is judged is the same without them
ORDERED = (ast.Sub, ast.Div, ast.MatMult, ast.Pow, ast.FloorDiv, ast.Mod)  # a · b is b · a, a − b is not b − a


def replacements(node: ast.AST, parent: ast.AST) -> Iterator[ast.AST]:
    """What may stand in place of `node`."""
    number = literal(node)
    if number is not None and literal(parent) is None:  # of −1 the whole, not the 1 in it
        yield from map(ast.Constant, others(number, isinstance(parent, (ast.Call, ast.keyword))))
    elif isinstance(node, (ast.BinOp, ast.AugAssign)):
        for operator in SWAPS.get(type(node.op), []):
            yield changed(node, op=operator())
        if isinstance(node, ast.BinOp) and isinstance(node.op, ORDERED):
            yield changed(node, left=node.right, right=node.left)
    elif isinstance(node, ast.BoolOp):
        yield changed(node, op=SWAPS[type(node.op)][0]())
    elif isinstance(node, ast.Compare):
        for i, operator in enumerate(node.ops):
            for other in SWAPS[type(operator)]:
                yield changed(node, ops=[*node.ops[:i], other(), *node.ops[i + 1 :]])
    elif isinstance(node, ast.UnaryOp):
        yield node.operand
    elif isinstance(node, ast.IfExp):
        yield from (node.body, node.orelse)
    elif isinstance(node, ast.Call):
        if len(node.args) > 1 and called(node) not in SYMMETRIC:
            yield changed(node, args=[node.args[1], node.args[0], *node.args[2:]])
        for i in range(len(node.keywords)):
            yield changed(node, keywords=[*node.keywords[:i], *node.keywords[i + 1 :]])
        method = isinstance(node.func, ast.Attribute) and not is_module(node.func.value)
        if method and called(node) not in SAME_VALUE and not isinstance(parent, ast.Expr):
            yield node.func.value  # x.abs() -> x
    elif isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Load) and len(node.elts) == 2:
        yield changed(node, elts=node.elts[::-1])
    elif isinstance(node, (ast.Expr, ast.Assign, ast.AugAssign, ast.If, ast.For)) and not is_docstring(node):
        yield ast.Pass()
    if isinstance(node, ast.AugAssign) or (isinstance(node, ast.If) and node.orelse):
        yield ast.Pass()


def literal(node: ast.AST) -> int | float | bool | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        value = literal(node.operand)
        return None if value is None or isinstance(value, bool) else -value
    is_number = isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float))
    return node.value if is_number else None


def others(value: int | float | bool, argument: bool) -> list:
    if isinstance(value, bool):
        return [not value]
    near = [value - 1, value + 1, 0]
    if argument and value in (-2, -1, 0, 1):  # it may be an axis
        near += [-2, -1, 0, 1]
    return [other for other in dict.fromkeys(near) if other != value]


def is_module(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("torch", "nn", "F", "math", "np")


def called(node: ast.Call) -> str:
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def changed(node: ast.AST, **fields) -> ast.AST:
    other = copy.copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return other


# --- mutants of one reference -----------------------------------------------------------------------------------------


def mutants(exercise: Exercise, seed: int) -> Iterator[Mutant]:
    """Every change of the reference, and of the functions and classes of its module that it uses."""
    reference = exercise.reference
    module = sys.modules[reference.__module__]
    tree = ast.parse(inspect.getsource(module))
    defined = {node.name: node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    used, run = reached(reference.__name__, defined), lines_that_run(exercise, seed)
    seen = set()
    for name in used:
        own = name == reference.__name__
        if not own and run.isdisjoint(range(defined[name].body[0].lineno, defined[name].end_lineno + 1)):
            continue
        for mutated, line in variants(defined[name]):
            before, after = difference(defined[name], mutated)
            if before == after or (name, before, after) in seen or not (own or line in run):
                continue
            seen.add((name, before, after))
            body = [{**defined, name: mutated}[each] for each in used]
            yield Mutant(name, line, before, after, made(reference, body))


def made(reference: Callable, body: list[ast.AST]) -> Callable:
    """The reference as it is with these functions and classes in place of its module's own."""
    space = dict(vars(sys.modules[reference.__module__]))
    exec(compile(ast.fix_missing_locations(ast.Module(copy.deepcopy(body), [])), "<mutant>", "exec"), space)
    return space[reference.__name__]


def lines_that_run(exercise: Exercise, seed: int) -> set[int]:
    """The lines of the exercise's module that run when the reference is called with every case, and those of `def`."""
    path, lines = inspect.getsourcefile(exercise.reference), set()

    def note(frame, event, argument):
        if frame.f_code.co_filename != path:
            return None
        lines.update((frame.f_lineno, frame.f_code.co_firstlineno))
        return note

    trials = prepare(exercise, seed)
    before = sys.gettrace()
    with undisturbed():
        sys.settrace(note)
        try:
            for trial in trials:
                call(exercise.reference, trial.call)
        finally:
            sys.settrace(before)
    return lines


def reached(name: str, defined: dict[str, ast.AST]) -> list[str]:
    """The function and all that it uses, in the order of the module."""
    found, open_ = {name}, [name]
    while open_:
        for node in ast.walk(defined[open_.pop()]):
            if isinstance(node, ast.Name) and node.id in defined and node.id not in found:
                found.add(node.id)
                open_.append(node.id)
    return [other for other in defined if other in found]


def variants(function: ast.AST, line: int | None = None) -> Iterator[tuple[ast.AST, int]]:
    """The function with one node replaced, on this line if one is given, and the line of that node."""
    for parent in ast.walk(function):
        for field, value in ast.iter_fields(parent):
            for i, node in enumerate(value if isinstance(value, list) else [value]):
                if not isinstance(node, ast.AST) or field in ("annotation", "returns", "decorator_list"):
                    continue
                if line not in (None, getattr(node, "lineno", function.lineno)):
                    continue
                for other in replacements(node, parent):
                    place = [*value[:i], other, *value[i + 1 :]] if isinstance(value, list) else other
                    setattr(parent, field, place)
                    mutated = copy.deepcopy(function)
                    setattr(parent, field, value)
                    yield mutated, getattr(node, "lineno", function.lineno)


def difference(one: ast.AST, other: ast.AST) -> tuple[str, str]:
    """The line that differs, before and after."""
    before, after = (ast.unparse(ast.fix_missing_locations(copy.deepcopy(node))).splitlines() for node in (one, other))
    changes = [line for line in difflib.ndiff(before, after) if line[0] in "+-"]
    gone, new = (" ".join(line[2:].strip() for line in changes if line[0] == sign) for sign in "-+")
    return gone, f"(dropped) of {gone}" if new in ("", "pass") and gone else new


# --- graded -----------------------------------------------------------------------------------------------------------


def survivors(exercise_id: str, seed: int = 0) -> tuple[int, list[Mutant]]:
    """How many mutants there are, and which of them pass."""
    exercise = EXERCISES[exercise_id]
    quick = replace(exercise, misconceptions=(), time_limit=min(exercise.time_limit, SECONDS))
    alive, count = [], 0
    with mock.patch.dict(EXERCISES, {exercise_id: quick}):
        for mutant in mutants(exercise, seed):
            count += 1
            if grade(exercise_id, mutant.answer, seed).passed:
                alive.append(mutant)
    return count, alive


def passes(exercise: Exercise, answer: Callable, seed: int) -> bool:
    """Does an answer pass? As grade says, but ended by the first case that it fails."""
    failed: list[bool] = []

    def until_one_fails():
        for trial in prepare(exercise, seed):
            outcome = summed_up(trial, call(answer, trial.call))
            if exercise.problem_of(trial, outcome) is not None:
                failed.append(True)
                return

    with undisturbed():
        ended = limited(until_one_fails, min(exercise.time_limit, SECONDS))
    return ended == "done" and not failed


def explained(exercise_id: str, mutant: Mutant) -> str | None:
    """Why the mutant is no wrong answer, if EQUIVALENT knows it."""
    return next((why for name, part, why in EQUIVALENT if name == exercise_id and part in mutant.after), None)


def chosen(names: list[str]) -> list[str]:
    """The ids of the code exercises and experiments that `names` are, or whose chapters they are; all for none."""
    called = [exercise.id for exercise in EXERCISES.values() if exercise.kind in ("code", "experiment")]
    unknown = [name for name in names if not any(name in (each, each.partition(".")[0]) for each in called)]
    if unknown:
        raise SystemExit(f"no code exercise or chapter {unknown[0]!r}; there are {', '.join(called)}")
    return [each for each in called if not names or each in names or each.partition(".")[0] in names]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.splitlines()[0])
    parser.add_argument("ids", nargs="*", metavar="ID", help="exercises, or chapters such as attention")
    parser.add_argument("--all", action="store_true", help="every code exercise and experiment")
    parser.add_argument("--seed", type=int, default=0, help="decides the cases (default: those of check)")
    arguments = parser.parse_args()
    if not arguments.ids and not arguments.all:
        parser.error("name exercises, or --all")
    torch.set_num_threads(1)
    totals, open_ = [0, 0, 0], 0
    print(f"{'exercise':<34}{'mutants':>8}{'killed':>8}{'alike':>8}{'survive':>8}")
    for exercise_id in chosen([] if arguments.all else arguments.ids):
        count, alive = survivors(exercise_id, arguments.seed)
        alike = [mutant for mutant in alive if explained(exercise_id, mutant)]
        row = [count, count - len(alive), len(alike)]
        totals = [total + each for total, each in zip(totals, row)]
        open_ += len(alive) - len(alike)
        print(f"{exercise_id:<34}{row[0]:>8}{row[1]:>8}{row[2]:>8}{len(alive) - len(alike):>8}", flush=True)
        for name, part, _ in EQUIVALENT:
            if name == exercise_id and not any(part in mutant.after for mutant in alive):
                print(f"    EQUIVALENT holds a line that fits no survivor: {part}")
        for mutant in alive:
            reason = explained(exercise_id, mutant)
            print(f"    {mutant.function}, line {mutant.line}: {mutant.before} -> {mutant.after}")
            print(f"        {reason or 'PASSES: a case is missing, or a line in EQUIVALENT'}")
    print(f"{'all':<34}{totals[0]:>8}{totals[1]:>8}{totals[2]:>8}{open_:>8}")
    return int(open_ > 0)


if __name__ == "__main__":
    sys.exit(main())
