"""Generated texts with the cache and without, in batches and alone, with a repetition penalty, and translated."""

import copies
import pytest
import torch

from course_lib.config import TransformerConfig
from course_lib.gpt import DecoderOnly
from course_lib.masks import padding_mask
from course_lib.sampling import generate, pad_left, penalize_repetition, sample_next_token


def seeded(seed):
    return torch.Generator().manual_seed(seed)


KINDS = {
    "GPT-2": {"positions": "learned"},
    "Llama": {"positions": "rope", "norm": "rms", "activation": "swiglu", "n_kv_heads": 2, "bias": False, "d_ff": 24},
    "ALiBi": {"positions": "alibi"},
    "sinusoids, post-norm": {"positions": "sinusoidal", "norm_position": "post"},
    "no positions": {"positions": "none", "n_kv_heads": 1},
}


@pytest.fixture(params=KINDS)
def any_model(request, device):
    return copies.drawn(DecoderOnly(TransformerConfig(**copies.SMALL, **KINDS[request.param])), seed=3).to(device)


@pytest.fixture
def translator():
    return copies.translator()


def tokens_read(model):
    """How many tokens of each row the model is given, call by call; the list fills as it runs."""
    lengths = []
    model.token_embedding.register_forward_hook(lambda _, inputs, output: lengths.append(inputs[0].shape[1]))
    return lengths


@pytest.fixture
def prompts(device):
    """3 tokens, and the tests add 20: the text grows past max_seq_len = 12, where the window begins to slide."""
    return [torch.tensor(ids, device=device) for ids in ([5, 6, 7], [8], [9, 10])]


@pytest.mark.parametrize(
    "settings", [{"temperature": 0, "repetition_penalty": 2.0}, {"temperature": 1.3, "top_p": 0.95}]
)
@pytest.mark.parametrize("padded", [pytest.param(False, marks=pytest.mark.proof), True])
def test_the_cache_does_not_change_the_text_before_and_after_the_window_slides(any_model, prompts, settings, padded):
    ids, left_padding = pad_left(prompts, 0) if padded else (torch.stack([prompts[0], prompts[0] + 3]), None)
    texts = [
        generate(any_model, ids, 20, **settings, left_padding=left_padding, use_cache=use, generator=seeded(1))
        for use in (True, False)
    ]
    assert torch.equal(*texts)
    assert texts[0][:, 3:].unique().numel() > 5


def test_with_the_cache_every_token_is_read_once_until_the_window_slides(any_model, prompts):
    lengths = tokens_read(any_model)
    generate(any_model, prompts[0][None], 12)
    assert lengths == [3] + 9 * [1] + 2 * [12]
    lengths.clear()
    generate(any_model, prompts[0][None], 4, use_cache=False)
    assert lengths == [3, 4, 5, 6]


def test_greedy_text_is_the_same_alone_and_in_a_batch_of_other_lengths(any_model, prompts):
    ids, left_padding = pad_left(prompts, 0)
    texts = generate(any_model, ids, 20, temperature=0, left_padding=left_padding)
    for prompt, padding, text in zip(prompts, left_padding, texts):
        alone = generate(any_model, prompt[None], 20, temperature=0)[0]
        assert text[padding:].tolist() == alone.tolist()


@pytest.mark.parametrize("pad_id", [0, 7, 39])
def test_what_stands_in_the_padding_does_not_matter(any_model, prompts, pad_id):
    ids, left_padding = pad_left(prompts, pad_id)
    text = generate(any_model, ids, 12, temperature=0, left_padding=left_padding, repetition_penalty=1.3)
    ids, _ = pad_left(prompts, 20)
    expected = generate(any_model, ids, 12, temperature=0, left_padding=left_padding, repetition_penalty=1.3)
    assert text[:, 3:].tolist() == expected[:, 3:].tolist()


def test_padding_on_the_left_makes_prompts_end_together():
    ids, left_padding = pad_left([[5, 6, 7], torch.tensor([8]), (9, 10)], pad_id=3)
    assert ids.tolist() == [[5, 6, 7], [3, 3, 8], [3, 9, 10]]
    assert left_padding.tolist() == [0, 2, 1]


@pytest.mark.parametrize(
    ("make", "use_cache"),
    [
        (copies.llama, True),
        *(
            pytest.param(*each, marks=pytest.mark.proof)
            for each in ((copies.llama, False), (copies.gpt2, True), (copies.gpt2, False))
        ),
    ],
)
def test_greedy_text_of_64_tokens_is_that_of_transformers_with_padding_too(make, use_cache):
    ours, theirs = make(seed=4)
    ids, left_padding = pad_left([[5, 6, 7, 8, 9], [10, 11], [12, 13, 14, 15, 16, 17, 18]], pad_id=0)
    text = generate(ours, ids, 64, temperature=0, left_padding=left_padding, use_cache=use_cache)
    real = (torch.arange(7) >= left_padding[:, None]).long()
    expected = theirs.generate(ids, attention_mask=real, pad_token_id=0, max_new_tokens=64, do_sample=False)
    assert text.tolist() == expected.tolist()
    assert text[:, 7:].unique().numel() > 10


@pytest.mark.parametrize("penalty", [0.7, 1.3, 3.0])
def test_text_with_a_repetition_penalty_is_that_of_transformers(penalty):
    ours, theirs = copies.gpt2(seed=5)
    ids = torch.tensor([[5, 6, 7, 8, 9], [10, 11, 12, 13, 14]])
    text = generate(ours, ids, 40, temperature=0, repetition_penalty=penalty)
    expected = theirs.generate(
        ids, attention_mask=ids.ne(-1), max_new_tokens=40, do_sample=False, repetition_penalty=penalty
    )
    assert text.tolist() == expected.tolist()
    assert text.tolist() != generate(ours, ids, 40, temperature=0).tolist()


def test_the_penalty_comes_before_the_temperature():
    ours, _ = copies.gpt2(seed=6)
    prompt = torch.tensor([[5, 6, 7, 8, 9]])
    logits = penalize_repetition(ours(prompt)[:, -1].detach(), prompt, 1.8)
    expected = sample_next_token(logits.expand(400, copies.V), 0.5, top_k=9, generator=seeded(2))
    text = generate(
        ours, prompt.expand(400, 5), 1, temperature=0.5, top_k=9, repetition_penalty=1.8, generator=seeded(2)
    )
    assert torch.equal(text[:, 5], expected)


SOURCE, SOURCE_LENGTHS = torch.tensor([[3, 4, 5, 6], [7, 8, 20, 20]]), [4, 2]


def test_a_translation_is_the_argmax_at_every_step_with_the_cache_and_without(translator):
    mask, start = padding_mask(SOURCE_LENGTHS, 4), torch.tensor([[1], [1]])
    for use_cache in (True, False):
        text = generate(translator, start, 11, temperature=0, source_ids=SOURCE, source_mask=mask, use_cache=use_cache)
        translator.eval()
        expected = translator(SOURCE, text, mask).argmax(-1)
        translator.train()
        assert torch.equal(text[:, 1:], expected[:, :-1])
        assert text.unique().numel() > 4


@pytest.mark.proof
def test_a_translation_does_not_depend_on_the_cache_when_the_window_slides(translator):
    settings = {"source_ids": SOURCE, "source_mask": padding_mask(SOURCE_LENGTHS, 4)}
    start = torch.tensor([[1], [2]])
    texts = [generate(translator, start, 20, **settings, use_cache=u, generator=seeded(3)) for u in (True, False)]
    assert torch.equal(*texts)


def test_a_source_is_translated_alike_alone_and_padded(translator):
    text = generate(
        translator, torch.tensor([[1], [1]]), 15, temperature=0, source_ids=SOURCE,
        source_mask=padding_mask(SOURCE_LENGTHS, 4),
    )  # fmt: skip
    alone = generate(translator, torch.tensor([[1]]), 15, temperature=0, source_ids=SOURCE[1:, :2])
    assert text[1].tolist() == alone[0].tolist()
    assert text[0].tolist() != alone[0].tolist()


def test_the_source_is_read_once(translator):
    sources = tokens_read(translator.encoder)
    targets = []
    translator.decoder.blocks[0].register_forward_hook(lambda _, inputs, output: targets.append(output.shape[1]))
    generate(translator, torch.tensor([[1]]), 5, source_ids=SOURCE[:1])
    assert targets == [1] * 5
    assert sources == [4]
    assert translator.training
