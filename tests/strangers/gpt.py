"""Right answers as strangers write them, chapter 9."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def forward_with_arange(parts, idx):
    _b, t = idx.size()
    block_size = parts.position_table.size(0)
    if t > block_size:
        raise ValueError(f"Cannot forward sequence of length {t}, block size is only {block_size}")
    pos = torch.arange(0, t, dtype=torch.long, device=idx.device)
    tok_emb = F.embedding(idx, parts.token_table)
    pos_emb = F.embedding(pos, parts.position_table)
    x = tok_emb + pos_emb
    bias = torch.tril(torch.ones(block_size, block_size)).view(block_size, block_size)
    for block in parts.blocks:
        x = block(x, bias[:t, :t] == 1)
    x = parts.final_norm(x)
    return F.linear(x, parts.output_table)


class _Decoder(nn.Module):
    """The parts in a module with layers of its own and a buffer for the mask."""

    def __init__(self, parts):
        super().__init__()
        self.wte = nn.Embedding.from_pretrained(parts.token_table)
        self.wpe = nn.Embedding.from_pretrained(parts.position_table)
        self.h, self.ln_f = parts.blocks, parts.final_norm
        V, d_model = parts.output_table.shape
        self.lm_head = nn.Linear(d_model, V, bias=False)
        self.lm_head.weight = nn.Parameter(parts.output_table, requires_grad=False)
        longest = parts.position_table.shape[0]
        self.register_buffer("future", torch.triu(torch.ones(longest, longest, dtype=torch.bool), diagonal=1))

    def forward(self, input_ids: Tensor) -> Tensor:
        batch_size, seq_len = input_ids.shape
        if seq_len > self.wpe.num_embeddings:
            raise ValueError("Sequence length exceeds the context length")
        position_ids = torch.arange(seq_len).unsqueeze(0).expand(batch_size, -1)
        hidden_states = self.wte(input_ids) + self.wpe(position_ids)
        for layer in self.h:
            hidden_states = layer(hidden_states, ~self.future[:seq_len, :seq_len])
        return self.lm_head(self.ln_f(hidden_states))


def forward_of_a_module(parts, ids):
    return _Decoder(parts)(ids)


def forward_by_einsum(parts, ids):
    *_, length = ids.shape
    positions = parts.position_table
    if not length <= len(positions):
        raise ValueError((length, len(positions)))
    onehot = (ids[..., None] == torch.arange(len(parts.token_table))).to(positions.dtype)
    stream = torch.einsum("btv,vd->btd", onehot, parts.token_table) + positions[None, :length]
    query, key = torch.meshgrid(torch.arange(length), torch.arange(length), indexing="ij")
    for block in parts.blocks:
        stream = block(stream, query >= key)
    return torch.einsum("btd,vd->btv", parts.final_norm(stream), parts.output_table)


def forward_text_by_text(parts, ids):
    """Lists of vectors, one text after the other, one logit after the other."""
    if ids.shape[1] > parts.position_table.shape[0]:
        raise ValueError("the text is too long for this model")
    texts = []
    for text in ids.tolist():
        vectors = []
        for position, token in enumerate(text):
            vectors.append(parts.token_table[token] + parts.position_table[position])
        h = torch.stack(vectors)[None]
        mask = torch.tensor([[key <= query for key in range(len(text))] for query in range(len(text))])
        for block in parts.blocks:
            h = block(h, mask=mask)
        h = parts.final_norm(h)[0]
        texts.append(torch.stack([torch.stack([torch.dot(row, vector) for row in parts.output_table]) for vector in h]))
    return torch.stack(texts)


def forward_recursive(parts, ids):
    T = ids.shape[1]
    if len(parts.position_table) < T:
        raise ValueError("too long")
    mask = torch.arange(T) <= torch.arange(T).unsqueeze(1)

    def after(n):
        if n == 0:
            return torch.index_select(parts.token_table, 0, ids.flatten()).view(*ids.shape, -1) + (
                parts.position_table.narrow(0, 0, T)
            )
        return parts.blocks[n - 1](after(n - 1), mask)

    return (parts.output_table @ parts.final_norm(after(len(parts.blocks))).mT).mT


class ContextTooLong(ValueError):
    """More tokens than positions, for whoever wants to catch that alone."""


def forward_with_an_error_of_its_own(parts, ids):
    if ids.size(1) > parts.position_table.size(0):
        raise ContextTooLong(f"{ids.size(1)} tokens")
    x = parts.token_table[ids] + parts.position_table[: ids.size(1)]
    hide_future = torch.full((ids.size(1), ids.size(1)), True).triu(diagonal=1).logical_not()
    for block in parts.blocks:
        x = block(x, hide_future)
    return parts.final_norm(x) @ parts.output_table.mT


def tie_as_a_method(model):
    def _tie_or_clone_weights(output_embeddings, input_embeddings):
        output_embeddings.weight = input_embeddings.weight
        if getattr(output_embeddings, "bias", None) is not None:
            output_embeddings.bias.data = F.pad(output_embeddings.bias.data, (0, 0))

    _tie_or_clone_weights(model.output, model.token_embedding)


def tie_by_the_parameters(model):
    model.output._parameters["weight"] = model.token_embedding._parameters["weight"]
    return model


def tie_by_assigning_the_state(model):
    model.output.load_state_dict(model.token_embedding.state_dict(keep_vars=True), assign=True)


def tie_by_walking(model):
    """Whoever holds the output's parameter gets the token table's, by name."""
    old, table = model.output.weight, model.token_embedding.weight
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            if parameter is old:
                setattr(module, name, table)


def tie_if_need_be(model):
    if model.output.weight is not model.token_embedding.weight:
        assert model.output.weight.shape == model.token_embedding.weight.shape
        model.output.weight = model.token_embedding.weight
    assert id(model.output.weight) == id(model.token_embedding.weight)


STRANGERS = {
    "gpt.forward": [
        forward_with_arange,
        forward_of_a_module,
        forward_by_einsum,
        forward_text_by_text,
        forward_recursive,
        forward_with_an_error_of_its_own,
    ],
    "gpt.tie_weights": [
        tie_as_a_method,
        tie_by_the_parameters,
        tie_by_assigning_the_state,
        tie_by_walking,
        tie_if_need_be,
    ],
}
