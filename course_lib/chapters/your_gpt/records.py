"""Chapter 18's records: the results of a completed my_gpt.py after full training, in assets/your_gpt.json.

python -m course_lib.chapters.your_gpt.records my/notebooks/my_gpt.py    trains yours for the same time and prints both
"""

import argparse
import math
import sys
import time
from collections import Counter
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from course_lib.chapters.your_gpt.workshop import LENT, learn, load, parity
from course_lib.claims.tinytown import HELD_OUT_SEED
from course_lib.config import TransformerConfig
from course_lib.course.files import ASSETS, read_json, save_json
from course_lib.device import computes_on
from course_lib.gpt import DecoderOnly, evaluating
from course_lib.ladder.rungs import BATCH, HELD_OUT, STEPS, Height
from course_lib.pretrained import load_text
from course_lib.tinytown import Batches, Tinytown, WordTokenizer, encode_stories
from course_lib.training import story_losses

RECORD = ASSETS / "your_gpt.json"
LONGEST = 80  # tokens of the longest story of Tinytown
STORIES_A_STEP = 8  # the same number of new stories as for the ladder's rungs
SEEDS = (0, 1, 2)  # as for the ladder's rungs


def tinytown_gpt(my_gpt: ModuleType, seed: int = 0) -> Any:
    """Return your model at the size of chapter 18, untrained."""
    torch.manual_seed(seed)
    return my_gpt.MyGPT(tinytown_config())


def tinytown_config(positions: str = "learned") -> TransformerConfig:
    """Return the configuration of the model of chapter 18."""
    return TransformerConfig(
        vocab_size=len(WordTokenizer()), d_model=64, n_heads=4, n_layers=4, max_seq_len=96, positions=positions
    )


def tinytown_batches(steps: int, seed: int = 0) -> Batches:
    """Return batches of stories for a run of this many steps; for 1,500 steps they equal the ladder's other batches."""
    tokenizer, generator = WordTokenizer(), torch.Generator().manual_seed(seed)
    ids = encode_stories(Tinytown(0).sample(STORIES_A_STEP * steps), tokenizer)
    return Batches(ids, BATCH, LONGEST, generator, start_id=tokenizer.bos_id)


def height(model: Any, n_stories: int = HELD_OUT) -> tuple[float, float]:
    """Return the loss of the model and of the grammar on the held-out stories, in nats per token."""
    tokenizer, town = WordTokenizer(), Tinytown(HELD_OUT_SEED)
    stories = town.sample(n_stories)
    nats, tokens = story_losses(model, [tokenizer.encode(story) for story in stories])
    return (nats.sum() / tokens.sum()).item(), -sum(map(town.log_prob, stories)) / tokens.sum().item()


def complete(my_gpt: ModuleType, seed: int = 0) -> tuple[float, float]:
    """Train your model in full; return its loss on the held-out stories, and the grammar's."""
    model = tinytown_gpt(my_gpt, seed)
    learn(my_gpt, model, tinytown_batches(STEPS, seed), STEPS)
    return height(model)


def with_rope(seed: int = 0) -> float:
    """Train the library's model of this size with RoPE on the same batches; return its loss on the held-out stories."""
    torch.manual_seed(seed)
    model = DecoderOnly(tinytown_config("rope"))
    library = SimpleNamespace(training_step=lambda *given: LENT["step"](*given, 1.0))
    learn(library, model, tinytown_batches(STEPS, seed), STEPS)
    return height(model)[0]


def recorded_heights() -> dict[str, Height]:
    """Return the records for the figure: a completed my_gpt.py, and the library's model with RoPE instead."""
    kept = recorded()
    steps, grammar = kept["tinytown"]["steps"], kept["tinytown"]["grammar"]
    return {
        f"complete my_gpt.py, {steps:,} steps": Height(tuple(kept["tinytown"]["nats"]), grammar),
        f"the library's GPT with RoPE, {steps:,} steps": Height(tuple(kept["rope"]["nats"]), grammar),
    }


# ----------------------------------------------------------------------------------------------------- a second text
LETTERS_STEPS, LETTERS_ROW = 1500, 64


def learn_letters(
    my_gpt: ModuleType, text: str, steps: int = LETTERS_STEPS, seed: int = 0, d_model: int = 128, written: int = 240
) -> dict[str, Any]:
    """Train your model on all but the last tenth of the letters of a text, and let it write `written` letters.

    Returns: "kinds" of letters and "parameters"; "losses", means of 25 steps; "held_out", nats per letter; "pairs" and
    "triples", the same for tables of counts; "sample".
    """
    kinds = sorted(set(text))
    ids = torch.tensor([kinds.index(letter) for letter in text])
    own, others = ids[: len(ids) * 9 // 10], ids[len(ids) * 9 // 10 :]
    torch.manual_seed(seed)
    model = my_gpt.MyGPT(
        TransformerConfig(vocab_size=len(kinds), d_model=d_model, n_heads=4, n_layers=4, max_seq_len=LETTERS_ROW)
    )
    batches = Batches(own, BATCH, LETTERS_ROW, torch.Generator().manual_seed(seed))
    losses = learn(my_gpt, model, batches, steps, peak=3e-3)
    with evaluating(model):
        held_out = model(*next(Batches(others, 256, LETTERS_ROW, torch.Generator().manual_seed(1))))[1].item()
        start = torch.tensor([[kinds.index("\n")]])
        told = my_gpt.write(model, start, written, torch.Generator().manual_seed(seed))[0, 1:].tolist()
    return {
        "kinds": len(kinds),
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "losses": [round(sum(losses[i : i + 25]) / 25, 3) for i in range(0, steps - 24, 25)],
        "held_out": round(held_out, 3),
        "pairs": round(count_letters(own, others, 2), 3),
        "triples": round(count_letters(own, others, 3), 3),
        "sample": "".join(kinds[i] for i in told),
    }


def count_letters(own: torch.Tensor, others: torch.Tensor, before: int, added: float = 0.1) -> float:
    """Count in `own` which letter follows each group of `before` letters. Return the nats per letter on `others`.

    own, others: (N,), ids of letters. added: added to every count, so that none is 0.
    """

    def groups(ids: torch.Tensor) -> list[tuple[int, ...]]:
        return [tuple(group) for group in ids.unfold(0, before + 1, 1).tolist()]

    followed = Counter(groups(own))
    seen: Counter = Counter()
    for group, count in followed.items():
        seen[group[:-1]] += count
    kinds = int(torch.cat([own, others]).max()) + 1
    held_out = groups(others)
    nats = (math.log((seen[group[:-1]] + added * kinds) / (followed[group] + added)) for group in held_out)
    return sum(nats) / len(held_out)


# ---------------------------------------------------------------------------------------------------------- the record
def recorded() -> dict[str, Any]:
    """Return the record: "tinytown", "rope" and "letters"."""
    return read_json(RECORD)


def main(argv: list[str] | None = None) -> int:
    """Train a my_gpt.py in full on both texts, and print the results or write them to the file."""
    parser = argparse.ArgumentParser(
        prog="python -m course_lib.chapters.your_gpt.records",
        description=f"Trains a my_gpt.py for {STEPS:,} steps on Tinytown, the budget of the ladder's rungs, and for "
        f"{LETTERS_STEPS:,} on Tiny Shakespeare, and prints its loss at the end. "
        "This takes about four minutes on one thread.",
    )
    parser.add_argument("file", help="your my_gpt.py")
    parser.add_argument("--record", action="store_true", help="authors: record the results for the chapter")
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    try:
        my_gpt = load(arguments.file)
    except ValueError as error:
        parser.error(str(error))
    if (found_equal := parity(my_gpt)).first:
        parser.error(f"{arguments.file} does not compute what the library's model computes yet\n{found_equal}")
    began = time.monotonic()
    nats, grammar = complete(my_gpt)
    seconds = time.monotonic() - began
    found: dict[str, Any] = {"tinytown": {"steps": STEPS, "nats": [round(nats, 4)], "grammar": round(grammar, 4)}}
    print(
        f"Tinytown: {nats:.4f} nats, {nats - grammar:.4f} above the entropy, "
        f"after {STEPS:,} steps in {seconds:.0f} s on {computes_on()}"
    )
    try:
        text = load_text("tinyshakespeare")
    except ValueError as error:
        print(f"The second text is left out: {error}")
        return 0
    began = time.monotonic()
    found["letters"] = learn_letters(my_gpt, text)
    seconds = time.monotonic() - began
    print(f"Tiny Shakespeare: {found['letters']['held_out']} nats per letter, in {seconds:.0f} s on {computes_on()}")
    print(found["letters"]["sample"])
    if arguments.record:
        found["tinytown"]["nats"] += [round(complete(my_gpt, seed)[0], 4) for seed in SEEDS[1:]]
        found["rope"] = {"nats": [round(with_rope(seed), 4) for seed in SEEDS]}
        save_json(RECORD, found)
    else:
        kept = recorded()
        print(f"As recorded: {kept['tinytown']['nats'][0]} and {kept['letters']['held_out']} nats")
    return 0


if __name__ == "__main__":
    sys.exit(main())
