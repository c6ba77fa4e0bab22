"""`python -m course_lib train`: train a model of the course from scratch."""

import argparse
from dataclasses import fields, replace
from pathlib import Path
from typing import Any


def add(commands: argparse._SubParsersAction) -> None:
    """Add the command with its arguments."""
    parser = commands.add_parser(
        "train",
        help="train a model of the course from scratch",
        description=(
            "Trains one of the course's models from random weights. The default is tinytown, the language model. It is "
            "then measured on held-out stories: its loss compared with the exact entropy of the grammar, capitals, the "
            "referent of 'it', who bit whom, pronouns, analogies. This takes about ten minutes on two cores. You may "
            "interrupt it; the same command continues. Options that you leave out have the values of the shipped "
            "model (course_lib/assets/tinytown/figures.json)."
        ),
        epilog=(
            "Example: python -m course_lib train --steps 500 --out runs/short   (what has it not learnt yet?)  Several "
            "processes, on one machine or many, can share a run of tinytown; each takes a batch: torchrun "
            "--nproc-per-node 2 -m course_lib train --batch-size 12 --threads 1   does the work of one process with "
            "--batch-size 24. If it is killed, the same command continues. For your own script see "
            "course_lib/training_options/processes.py"
        ),
    )
    parser.add_argument("model", nargs="?", default="tinytown", help="which model (default: %(default)s)")
    parser.add_argument(
        "--out", help="folder for the model (default: runs/MODEL); a finished model is never overwritten"
    )
    parser.add_argument("--steps", type=int, help="number of updates of the weights")
    parser.add_argument("--batch-size", type=int, help="number of rows of text per update")
    parser.add_argument("--peak", type=float, help="highest learning rate")
    parser.add_argument("--seed", type=int, help="determines the initial weights and the stories")
    parser.add_argument("--stories", type=int, help="number of stories to train on")
    parser.add_argument("--threads", type=int, help="cores to use, per process")
    parser.add_argument("--precision", help="float32, or bf16: multiply matrices in 16 bits, if the processor can")
    parser.add_argument(
        "--compile", action="store_true", default=None, help="compile each block, which is faster; needs a C++ compiler"
    )
    parser.add_argument(
        "--accumulate", type=int, help="batches per update: works like a larger batch, with less memory"
    )
    parser.set_defaults(run=run, remedy="name a folder that you may write to with --out")


def run(arguments: argparse.Namespace) -> int:
    """Train the model; for tinytown, also print what it has learnt."""
    import torch

    from course_lib.claims import TinytownRecipe, recipes, train_tinytown
    from course_lib.device import computes_on
    from course_lib.pretrained import shipped_figures
    from course_lib.training_options.processes import count, join_processes, rank

    join_processes()
    recipe = TinytownRecipe()
    told = {field.name: getattr(arguments, field.name, None) for field in fields(recipe)}
    chosen: dict[str, Any] = {name: value for name, value in told.items() if value is not None}
    folder = Path(arguments.out or f"runs/{arguments.model}")
    if arguments.model != "tinytown":
        if count() > 1:
            raise ValueError(
                f"{count()} processes can share only the training of tinytown: start this one with plain python"
            )
        if arguments.model not in recipes():
            raise ValueError(f"there is no recipe {arguments.model!r}: choose from tinytown, {', '.join(recipes())}")
        if chosen:
            raise ValueError(f"only the recipe of tinytown has options; leave out {', '.join(chosen)}")
        if folder.exists() and any(folder.iterdir()):
            raise ValueError(f"{folder} is not empty: give another folder with --out, or move that one away")
        folder.mkdir(parents=True, exist_ok=True)  # fails before training if the folder is impossible
        recipes()[arguments.model](folder, True)
        print(f'Open it with `load_pretrained("{folder}")`.')
        return 0
    recipe = replace(recipe, **chosen)
    torch.set_num_threads(recipe.threads)
    if rank() == 0:
        by = f" in {count()} processes" if count() > 1 else ""
        print(f"Training the Tinytown model for {recipe.steps:,} steps on {computes_on()}{by}, into {folder}.")
        print("You may interrupt it: the same command continues from the last checkpoint.")
    try:
        figures, _ = train_tinytown(folder, recipe)
    except KeyboardInterrupt:
        if (checkpoint := folder / "training.pt").exists():
            arguments.kept = f"The same command continues from the last checkpoint, {checkpoint}."
        raise
    if rank():
        return 0  # only the first process reports
    report_figures(figures, shipped_figures()["figures"])
    print(f'\nOpen it with `load_pretrained("{folder}")`.')
    return 0


def report_figures(figures, shipped: dict) -> None:
    """Print a table that compares this model's `TinytownFigures` with the shipped model's."""
    print(f"\n{'on held-out stories':<28}{'this model':>32}{'shipped':>32}")
    for field in fields(figures):
        now, then = getattr(figures, field.name), shipped.get(field.name, "not measured")
        print(f"{field.name:<28}{_shown(now):>32}{_shown(then):>32}")


def _shown(value) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return " ".join(value) if isinstance(value, list) else str(value)
