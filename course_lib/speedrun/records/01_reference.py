"""The recipe of the shipped model.

AdamW, a short warm-up and a cosine: chapter 12 as it stands.
"""

import torch

from course_lib.config import TransformerConfig
from course_lib.gpt import DecoderOnly
from course_lib.training import learning_rate, make_optimizer

STEPS = 5000


def train(text, seed):
    """Return a model of GPT-2's shape, trained on the text."""
    torch.manual_seed(seed)
    config = TransformerConfig(vocab_size=text.vocab_size, d_model=128, n_heads=4, n_layers=4, max_seq_len=96)
    model = DecoderOnly(config)
    optimizer = make_optimizer(model)
    batches = text.batches(24, 96, torch.Generator().manual_seed(seed))
    for step in text.steps(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step + 1, 3e-3, 100, STEPS)
        _, loss = model(*next(batches))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model
