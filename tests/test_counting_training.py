"""What training costs, held against published runs; what its processes send, against a ring that is played through."""

import pytest
import torch

from course_lib.config import TransformerConfig, preset
from course_lib.counting import all_reduce_bytes, count_parameters, forward_flops, training_days, training_flops

GPT_3 = TransformerConfig(vocab_size=50_257, d_model=12_288, n_heads=96, n_layers=96, max_seq_len=2048)
MEGATRON_1T = TransformerConfig(vocab_size=51_200, d_model=25_600, n_heads=160, n_layers=128, max_seq_len=2048)
LLAMA = {"norm": "rms", "activation": "swiglu", "positions": "rope", "tie_weights": False, "bias": False}
LLAMA_65B = TransformerConfig(
    vocab_size=32_000, d_model=8192, n_heads=64, n_layers=80, max_seq_len=2048, d_ff=22_016, **LLAMA
)
LLAMA_3_405B = TransformerConfig(
    vocab_size=128_256, d_model=16_384, n_heads=128, n_kv_heads=8, n_layers=126, max_seq_len=8192, d_ff=53_248, **LLAMA
)
A100, H100 = 312e12, 989e12  # FLOP per second in bfloat16, as NVIDIA names them


@pytest.mark.parametrize(
    ("config", "billions"), [(GPT_3, 175), (MEGATRON_1T, 1008), (LLAMA_65B, 65.2), (LLAMA_3_405B, 405)]
)
def test_the_published_models_have_their_published_sizes(config, billions):
    assert count_parameters(config).total == pytest.approx(billions * 1e9, rel=0.005)


@pytest.mark.parametrize(
    ("config", "tokens", "published"),
    [
        # Brown et al. 2020, table D.1: 6 N D, without the pairs of attention.
        (GPT_3, 300 * 10**9, 3.14e23),
        # Grattafiori et al. 2024 (Llama 3), section 1: 15.6 trillion tokens. 6 N D as well; at T = 8192 the pairs are
        # 8% more, and all of them are counted here, also those that a causal kernel skips.
        (LLAMA_3_405B, 156 * 10**11, 3.8e25),
    ],
)
def test_flops_of_training_are_those_published_within_a_tenth(config, tokens, published):
    found = training_flops(config, tokens)
    assert published < found < 1.1 * published
    linear = 6 * (count_parameters(config).total - config.vocab_size * config.d_model) * tokens
    assert linear == pytest.approx(published, rel=0.02)


@pytest.mark.parametrize(
    ("config", "tokens", "gpus", "reached", "published"),
    [
        # Narayanan et al. 2021 (Megatron-LM), section 5.1, activations recomputed.
        (GPT_3, 300 * 10**9, 1024, 140e12, 34),
        (MEGATRON_1T, 450 * 10**9, 3072, 163e12, 84),
    ],
)
def test_days_on_a_thousand_gpus_are_those_published_within_a_twentieth(config, tokens, gpus, reached, published):
    days = training_days(config, tokens, gpus, A100, reached / A100, recomputed=True)
    assert days == pytest.approx(published, rel=0.05)


def test_gpu_hours_of_llama_3_1_are_those_of_its_model_card_within_an_eighth():
    """30.84 million hours on H100s (model card), at 38 to 43% utilization (Grattafiori et al. 2024, table 4: 400
    TFLOP/s on 16,384). The hours hold interruptions too."""
    hours = training_days(LLAMA_3_405B, 156 * 10**11, 16_384, H100, 400e12 / H100) * 24 * 16_384
    assert hours == pytest.approx(30.84e6, rel=1 / 8)
    assert hours < 30.84e6


def test_llama_65b_at_its_published_speed_takes_its_published_days_at_a_utilization_that_is_usual():
    """Touvron et al. 2023, section 2.4: 380 tokens per second and GPU on 2,048 A100, 21 days for 1.4 trillion."""
    speed = 380 * training_flops(LLAMA_65B, 10**6) / 10**6  # FLOP per second and GPU
    assert 0.4 < speed / A100 < 0.55
    assert training_days(LLAMA_65B, 14 * 10**11, 2048, A100, speed / A100) == pytest.approx(21, abs=0.5)


@pytest.mark.parametrize("name", ["gpt2", "llama-7b", "bert-base", "transformer-base"])
def test_training_is_three_forward_passes_and_a_fourth_where_they_are_computed_again(name):
    config = preset(name)
    assert training_flops(config, 640, T=64) == 3 * forward_flops(config, 64, batch=10)
    assert training_flops(config, 640, T=64, recomputed=True) == 4 * forward_flops(config, 64, batch=10)


def test_days_halve_with_twice_the_gpus_and_with_twice_the_utilization():
    days = training_days(preset("gpt2"), 10**9, 1, A100, 0.2)
    assert training_days(preset("gpt2"), 10**9, 2, A100, 0.2) == pytest.approx(days / 2)
    assert training_days(preset("gpt2"), 10**9, 1, A100, 0.4) == pytest.approx(days / 2)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_a_ring_sends_what_the_formula_says_and_all_know_the_sum(n):
    """A ring played through: process p sends a part to p + 1, n − 1 times to add up, n − 1 times to make it known."""
    config = TransformerConfig(vocab_size=n * 10, d_model=4 * n, n_heads=1, n_layers=1, max_seq_len=n)
    size = count_parameters(config).total // n * n  # what is left over when parts are not equal is rounded here
    gradients = torch.randn(n, n, size // n, dtype=torch.double)  # (process, part, numbers)
    total, sent = gradients.sum(dim=0), 0
    for turn in range(2 * (n - 1)):
        parts = [(p - turn) % n for p in range(n)]
        messages = [gradients[p, part].clone() for p, part in enumerate(parts)]
        for p, part in enumerate(parts):
            receiver = gradients[(p + 1) % n, part]
            receiver.copy_(receiver + messages[p] if turn < n - 1 else messages[p])
        sent += messages[0].numel() * 4
    for process in gradients:
        torch.testing.assert_close(process, total)
    assert all_reduce_bytes(config, n) == pytest.approx(sent, abs=8 * n)


def test_a_thousand_processes_send_hardly_more_than_two():
    size = 4 * count_parameters(preset("gpt2")).total
    assert all_reduce_bytes(preset("gpt2"), 1) == 0
    assert all_reduce_bytes(preset("gpt2"), 2) == size
    assert 1.99 * size < all_reduce_bytes(preset("gpt2"), 1000) < 2 * size
    assert all_reduce_bytes(preset("gpt2"), 2, bytes_per_element=2) == size / 2


@pytest.mark.usefixtures("as_a_learner")
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_tokens": 0}, "n_tokens must be a whole number of at least 1, got 0"),
        ({"n_gpus": 0}, "n_gpus must be a whole number of at least 1, got 0"),
        ({"n_gpus": 1.5}, r"n_gpus must be a whole number of at least 1, got 1\.5"),
        ({"peak_flops": 0}, "peak_flops must be a positive number, got 0"),
        ({"utilization": 40}, r"utilization must be in \(0, 1\], got 40"),
        ({"T": 0}, "T must be a whole number of at least 1, got 0"),
    ],
)
def test_a_cost_of_nothing_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        training_days(**{"config": GPT_3, "n_tokens": 10, "n_gpus": 1, "peak_flops": A100, "utilization": 0.4} | wrong)
    with pytest.raises(ValueError, match="n_processes must be a whole number of at least 1, got 0"):
        all_reduce_bytes(GPT_3, 0)
