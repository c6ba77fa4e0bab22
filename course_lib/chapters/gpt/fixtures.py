"""How the tests of chapter 9 build arguments that are not plain data, and use an answer: see `grading/fixtures.py`."""

import torch
from torch import nn

from course_lib.blocks import TransformerBlock, make_norm
from course_lib.config import TransformerConfig
from course_lib.grading.fixtures import Pieces, with_drawn_weights


class _Parts(Pieces):
    """A decoder in pieces: tables (V, d_model), (max_seq_len, d_model) and (V, d_model), blocks and a norm."""

    def __init__(self, config, n_blocks, tied):
        super().__init__()
        self.blocks = nn.ModuleList(TransformerBlock(config) for _ in range(n_blocks))
        self.final_norm = make_norm(config)
        self.token_table = nn.Parameter(torch.empty(config.vocab_size, config.d_model))
        self.position_table = nn.Parameter(torch.empty(config.max_seq_len, config.d_model))
        self.output_table = self.token_table if tied else nn.Parameter(torch.empty(config.vocab_size, config.d_model))


def decoder_parts(sizes: dict, n_blocks: int, seed: int, dtype: str = "float32", tied: bool = False) -> nn.Module:
    """Return the parts of a decoder with random weights; its blocks have no mask of their own."""
    config = TransformerConfig(n_layers=1, family="encoder", **sizes)
    return with_drawn_weights(_Parts(config, n_blocks, tied), seed, dtype)


def logits_or_refusal(answer, parts, ids):
    """Return the logits, or the name of the error if the text is longer than the table of positions.

    An error class derived from ValueError counts as ValueError.
    """
    if ids.shape[1] <= len(parts.position_table):
        return answer(parts, ids)
    try:
        return answer(parts, ids)
    except NotImplementedError:
        raise
    except ValueError:
        return "ValueError"
    except Exception as error:
        return type(error).__name__


def tied(answer, model, ids, targets):
    """Return what the answer did to a model's two tables, and how a training step changes them."""
    answer(model)
    tables = model.token_embedding.weight, model.output.weight
    before = [table.detach().clone() for table in tables]
    logits, loss = model(ids, targets)
    loss.backward()
    torch.optim.SGD(model.parameters(), lr=1.0).step()
    return {
        "one tensor": tables[0] is tables[1],
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "token table": before[0],
        "output table": before[1],
        "logits": logits,
        "token table after a step": tables[0],
        "output table after a step": tables[1],
    }
