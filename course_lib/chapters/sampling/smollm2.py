"""Chapter 13's prompt for a real model: SmolLM2's distribution of the next token, measured once and kept in a file.

The weights are a large download, so the chapter shows the record; a proof compares it with the weights.
"""

from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.course.files import ASSETS, read_json
from course_lib.pretrained import load_pretrained

PROMPT = "Once there was a king called Tom."
NAMED = 200  # tokens that the record names, the most probable ones
STEP = 0.25  # nats: the others are counted in steps of this width


def measure_next_token() -> dict[str, Any]:
    """Return SmolLM2's distribution after PROMPT. This needs its weights.

    tokens, log_p: text and ln p of the most probable tokens, without the space before a word.
    tail: how many of the other tokens have an ln p that rounds to 0, 1, 2, … steps below 0.
    """
    model, tokenizer = load_pretrained("smollm2-135m")
    with torch.no_grad():
        log_p = model(torch.tensor([tokenizer.encode(PROMPT)]))[0, -1].log_softmax(dim=-1)  # (V,)
    order = log_p.argsort(descending=True)
    texts = [tokenizer.decode([i]) for i in order[:NAMED].tolist()]
    return {
        "tokens": [(text.strip(" ") or "␣").replace("\n", "↵") for text in texts],
        "log_p": [round(each, 2) for each in log_p[order[:NAMED]].tolist()],
        "tail": torch.bincount((-log_p[order[NAMED:]] / STEP).round().long()).tolist(),
    }


@cache
def recorded_next_token() -> tuple[list[str], Float[Tensor, "V"]]:
    """Return the recorded distribution: the names of all V tokens, most probable first, and their logits.

    A token of the tail has the name "…" and the middle of its step as its logit.
    """
    kept = read_json(ASSETS / "real_models.json")["next_token"]
    counts = torch.tensor(kept["tail"])
    tail = (-STEP * torch.arange(len(counts))).repeat_interleave(counts)  # (V − NAMED,)
    logits = torch.cat([torch.tensor(kept["log_p"]), tail])
    return kept["tokens"] + ["…"] * len(tail), logits
