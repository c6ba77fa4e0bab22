"""Chapter 10's experiments: the verdicts, and the exact numbers, worked out here on their own."""

import pytest

from course_lib.chapters.counting import claims as counting
from course_lib.claims import find
from course_lib.config import PRESETS


def test_gpt2_small_is_larger_than_its_first_label():
    finding = find("counting.gpt2_117m")()
    assert finding.verdict == "refuted"
    d = 768
    block = 4 * d * d + 4 * d + 8 * d * d + 5 * d + 4 * d
    assert finding.values[0] == 50_257 * d + 1024 * d + 12 * block + 2 * d == 124_439_808
    assert finding.values[1] == 40_478 * d + 1024 * d + 12 * block + 2 * d


def test_the_papers_labels_are_the_four_sizes_with_gpt1s_vocabulary():
    """Radford et al. 2019, table 2: 117M, 345M, 762M, 1542M. Their own vocabulary gives none of the four."""
    sizes = {(12, 768): 117, (24, 1024): 345, (36, 1280): 762, (48, 1600): 1542}
    with_gpt1s, own = (
        [V * d + 1024 * d + L * (12 * d * d + 13 * d) + 2 * d for L, d in sizes] for V in (40_478, 50_257)
    )
    assert [round(n / 1e6) for n in with_gpt1s] == list(sizes.values())
    assert not {round(n / 1e6) for n in own} & set(sizes.values())
    assert f"{own[-1] / 1e9:.1f}" == "1.6", "its label 1.5B is not right after rounding"
    finding = find("counting.gpt2_117m")()
    assert finding.values == (own[0], *with_gpt1s)
    assert "inference" in finding.because


def test_small_models_need_not_have_large_tables():
    finding = find("counting.tables_hold_most")()
    assert finding.verdict == "depends"
    example, tinytown, gpt2, xl, llama, llama_3 = finding.values
    assert example == pytest.approx(15_360_000 / 34_537_472)
    assert tinytown < 0.2, "the smallest model, and not a large share"
    assert gpt2 > 0.2 > max(xl, llama, llama_3)
    assert llama == pytest.approx(2 * 131_072_000 / 6_738_415_616)
    # a tied table outweighs the feed-forward layers while V > 8 · L · d: true of the example, not of GPT-2 small
    assert 30_000 > 8 * 6 * 512
    assert 50_257 < 8 * 12 * 768


def test_two_thirds_hold_for_blocks_with_plain_heads_and_not_for_whole_small_models():
    finding = find("counting.twice_attention")()
    assert finding.verdict == "depends"
    whole, blocks = finding.values[:3], finding.values[3:]
    gpt2, llama, llama_3 = (share / (1 - share) for share in blocks)
    assert gpt2 == pytest.approx((8 * 768 + 5) / (4 * 768 + 4))
    assert llama == pytest.approx(3 * 11_008 / (4 * 4096))
    assert llama_3 == pytest.approx(3 * 14_336 / (2.5 * 4096)), "keys and values of a quarter the width"
    assert whole[0] == pytest.approx(56_669_184 / 124_439_808)


def test_tying_saves_one_table():
    finding = find("counting.tying_saves")()
    assert finding.verdict == "confirmed"
    assert finding.values == (30_000 * 512, 50_257 * 768)


def test_the_quadratic_part_passes_one_half_at_six_times_d_model():
    finding = find("counting.quadratic")()
    assert finding.verdict == "depends"
    d = PRESETS["gpt2"].d_model
    assert finding.values == pytest.approx([T / (6 * d + T) for T in (128, 1024, 16_384)], rel=1e-3)


def test_counts_of_built_models_need_no_memory():
    assert counting.built(PRESETS["gpt2-xl"]) == 1_557_611_200
