"""Chapter 10's experiments: the verdicts, and the exact numbers, worked out here on their own."""

from dataclasses import replace

import pytest

from course_lib.chapters.counting import claims as counting
from course_lib.claims import find, recorded
from course_lib.config import PRESETS
from course_lib.counting import count_parameters, forward_flops

OUTCOMES = {
    "counting.gpt2_117m": {"confirmed": {"millions": 117.2}, "refuted": {"millions": 124.4}},
    "counting.tables_hold_most": {
        "confirmed": {"small": [0.31, 0.26], "large": [0.05, 0.13]},
        "depends": {"small": [0.31, 0.08], "large": [0.05, 0.13]},
        "refuted": {"small": [0.10, 0.08], "large": [0.05, 0.13]},
    },
    "counting.twice_attention": {
        "confirmed": {"whole": [0.64, 0.70], "blocks": [0.67, 0.71]},
        "depends": {"whole": [0.46, 0.80], "blocks": [0.67, 0.82]},
        "refuted": {"whole": [0.46, 0.80], "blocks": [0.5, 0.82]},
    },
    "counting.quadratic": {
        "confirmed": {"parts": [0.6, 0.8, 0.9]},
        "depends": {"parts": [0.03, 0.18, 0.78]},
        "refuted": {"parts": [0.03, 0.18, 0.4]},
    },
}


def test_gpt2_small_is_larger_than_its_first_label():
    d = 768
    block = 4 * d * d + 4 * d + 8 * d * d + 5 * d + 4 * d
    assert counting.built(PRESETS["gpt2"]) == 50_257 * d + 1024 * d + 12 * block + 2 * d == 124_439_808


def test_the_papers_labels_are_the_four_sizes_with_gpt1s_vocabulary():
    """Radford et al. 2019, table 2: 117M, 345M, 762M, 1542M. Their own vocabulary gives none of the four."""
    sizes = {(12, 768): 117, (24, 1024): 345, (36, 1280): 762, (48, 1600): 1542}
    with_gpt1s, own = (
        [V * d + 1024 * d + L * (12 * d * d + 13 * d) + 2 * d for L, d in sizes] for V in (40_478, 50_257)
    )
    assert [round(n / 1e6) for n in with_gpt1s] == list(sizes.values())
    assert not {round(n / 1e6) for n in own} & set(sizes.values())
    assert f"{own[-1] / 1e9:.1f}" == "1.6", "its label 1.5B is not right after rounding"
    finding = recorded()["counting.gpt2_117m"]
    assert finding.values == pytest.approx((own[0], *with_gpt1s), rel=1e-5), "the record keeps six digits"
    assert "inference" in finding.because


def test_published_sub_billion_models_need_not_have_large_tables_and_the_toy_is_not_among_them():
    finding = find("counting.tables_hold_most")()
    small, large = finding.figures["small"], finding.figures["large"]
    assert len(small) + len(large) == 7
    assert "tinytown" not in finding.measured
    assert small[0] == pytest.approx(50_257 * 768 / 124_439_808)
    assert min(small) < max(large), "GPT-2 large holds less in its table than Llama-3-8B"
    assert finding.values[4] == pytest.approx(2 * 131_072_000 / 6_738_415_616)
    # a tied table outweighs the feed-forward layers while V > 8 · L · d: true of the chapter's example, not of GPT-2
    assert 30_000 > 8 * 6 * 512
    assert 50_257 < 8 * 12 * 768


def test_two_thirds_became_four_fifths_with_fewer_key_value_heads():
    whole, blocks = (find("counting.twice_attention")().figures[name] for name in ("whole", "blocks"))
    gpt2, llama, llama_3, llama_3_large = (part / (1 - part) for part in blocks)
    assert gpt2 == pytest.approx((8 * 768 + 5) / (4 * 768 + 4))
    assert llama == pytest.approx(3 * 11_008 / (4 * 4096))
    assert llama_3 == pytest.approx(3 * 14_336 / (2.5 * 4096)), "keys and values of a quarter the width"
    assert llama_3_large == pytest.approx(3 * 28_672 / (2.25 * 8192)), "of an eighth"
    assert whole[0] == pytest.approx(56_669_184 / 124_439_808)
    assert whole[3] == pytest.approx(0.8, abs=0.005)


def test_llama_3_70b_has_the_parameters_of_its_checkpoint():
    assert count_parameters(counting.LLAMA_3_70B).total == 70_553_706_496


def test_the_quadratic_part_passes_one_half_at_six_times_d_model():
    d = PRESETS["gpt2"].d_model
    assert find("counting.quadratic")().values == pytest.approx(
        [T / (6 * d + T) for T in (128, 1024, 16_384)], rel=1e-3
    )


def test_a_llama_3_block_has_13_d_squared_weights_and_passes_one_half_later():
    """It was once counted with the 12 d² of GPT-2's block."""
    config = replace(PRESETS["llama-3-8b"], vocab_size=1, max_seq_len=200_000)
    d = config.d_model
    T = int(6.5 * d)
    assert config.n_layers * 4 * T * T * d / forward_flops(config, T) == pytest.approx(0.5, abs=1e-3)
    assert "13 d²" in find("counting.quadratic")().because


def test_llama_7b_has_8_d_squared_in_its_feed_forward_layer_from_three_matrices_and_not_from_4_d():
    config = PRESETS["llama-7b"]
    assert config.d_ff / config.d_model == pytest.approx(2.7, abs=0.02)
    assert 3 * config.d_ff / config.d_model == pytest.approx(8, abs=0.1)
    assert "8 d² in feed-forward layers" in find("counting.twice_attention")().because


def test_counts_of_built_models_need_no_memory():
    assert counting.built(PRESETS["gpt2-xl"]) == 1_557_611_200
