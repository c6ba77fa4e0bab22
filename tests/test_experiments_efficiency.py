"""Chapter 14's experiments: the verdicts, bands for the figures from elsewhere, and the script of several processes."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile

from course_lib.chapters.efficiency import claims as efficiency
from course_lib.chapters.efficiency import processes
from course_lib.claims import find, in_order, recorded
from course_lib.config import PRESETS
from course_lib.course.contents import chapter_of
from course_lib.gpt import DecoderOnly

# Figures that are possible, for each outcome.
OUTCOMES = {
    "efficiency.cache_bytes": {
        "confirmed": {"shares": (0.6, 0.8)},
        "depends": {"shares": (0.1, 0.8)},
        "refuted": {"shares": (0.1, 0.2)},
    },
    "efficiency.score_memory": {"by construction": {}},
    "efficiency.stored_scores": {
        "confirmed": {"plain": 16, "fused": 16},
        "depends": {"plain": 16, "fused": 8},
        "refuted": {"plain": 16, "fused": 4},
    },
    "efficiency.mixed_precision": {
        "confirmed": {"few": 0.55, "many": 0.5},
        "depends": {"few": 0.8, "many": 0.5},
        "refuted": {"few": 0.9, "many": 0.8},
    },
    "efficiency.cache_equal": {
        "confirmed": {"double": 1e-15, "single": 0.0, "bfloat16": 0.012, "float16": 0.02},
        "depends": {"double": 1e-15, "single": 0.0, "bfloat16": 0.012, "float16": 0.003},
        "refuted": {"double": 1e-15, "single": 0.001, "bfloat16": 0.012, "float16": 0.003},
    },
    "efficiency.time_exponent": {
        "confirmed": {"kernel": 2.0, "short": 1.8, "layer": 1.8},
        "depends": {"kernel": 2.0, "short": 1.6, "layer": 1.5},
        "refuted": {"kernel": 1.5, "short": 1.0, "layer": 1.2},
    },
    "efficiency.cache_time": {
        "confirmed": {"cached": (1.0, 1.0), "whole": (2.0, 2.0)},
        "depends": {"cached": (0.1, 1.0), "whole": (1.0, 2.0)},
        "refuted": {"cached": (2.0, 1.0), "whole": (2.0, 2.0)},
    },
    "efficiency.rnn": {
        "confirmed": {"operations": (0.5, 0.6), "times": (0.4, 0.5)},
        "depends": {"operations": (2.5, 0.6), "times": (0.4, 0.7)},
        "refuted": {"operations": (2.5, 1.2), "times": (1.4, 1.5)},
    },
}


@pytest.mark.parametrize(("T", "d_model"), [(16, 16), (96, 16), (7, 32)])
def test_the_counted_share_of_pairs_is_the_formulas(T, d_model):
    assert efficiency.pairs_share(T, d_model) == pytest.approx(T / (T + 6 * d_model))


def test_pairs_are_most_of_the_work_of_a_public_model_only_in_very_long_texts():
    """Each with its own block: Llama 3's has 13 d² weights, not 12 d²."""
    shares = {name: efficiency.model_share(PRESETS[preset], T) for name, (preset, T) in efficiency.LONGEST.items()}
    assert shares["GPT-2 small"] == pytest.approx(1024 / (1024 + 6 * 768))
    assert shares["Llama 3.1 8B"] == pytest.approx(131_072 / (131_072 + 6.5 * 4096))
    assert [name for name, share in shares.items() if share > 0.5] == ["Llama 3.1 8B"]


def test_a_step_reads_the_weights_once_and_each_texts_own_keys_and_values():
    config = PRESETS["gpt2"]
    weights = 12 * (12 * 768**2 + 13 * 768) + 2 * 768 + 50_257 * 768  # blocks, last norm, and the table as the head
    cache = 2 * 12 * 1024 * 768
    assert efficiency.cache_share(config, 1024, 1) == pytest.approx(cache / (cache + weights))
    assert efficiency.cache_share(config, 1024, 64) == pytest.approx(64 * cache / (64 * cache + weights))
    untied = PRESETS["llama-3-8b"]
    read = 8.03e9 - untied.vocab_size * untied.d_model  # the table that is looked up is not read
    cache = 2 * 32 * 131_072 * 1024
    assert efficiency.cache_share(untied, 131_072, 1) == pytest.approx(cache / (cache + read), rel=1e-3)


def test_what_a_step_reads_depends_on_how_many_texts_share_the_weights():
    finding = find("efficiency.cache_bytes")()
    assert finding.verdict == "depends"
    assert max(finding.values[::2][:2]) < 0.2 < 0.8 < min(finding.values[1::2])


def test_a_heads_scores_have_one_number_per_pair_and_this_is_arithmetic():
    finding = find("efficiency.score_memory")()
    assert finding.values[0] == 65_536**2 * 4 / 1e9
    assert not find("efficiency.score_memory").could_fail


def test_the_largest_tensor_of_a_chain_of_operations():
    x = torch.zeros(10, 3)
    assert efficiency.largest_tensor(lambda: (x @ x.T).sum()) == 10 * 10 * 4
    assert efficiency.largest_tensor(lambda: x.T @ x) == 10 * 3 * 4  # x.T is a view of all 30
    assert efficiency.largest_tensor(lambda: torch.zeros(7, dtype=torch.float64).max(dim=0)) == 7 * 8


def test_only_the_plain_steps_store_the_matrix_so_it_is_not_required():
    finding = find("efficiency.stored_scores")()
    assert finding.verdict == "refuted"
    assert finding.values == (16, 4)


@torch.library.custom_op("course_tests::stores_all_scores", mutates_args=())
def stores_all_scores(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1) @ v


def most_held(function) -> int:
    """The most bytes that PyTorch's allocator holds at once, also inside of an operation."""
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        function()
    held = most = 0
    for event in seen.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most


def test_the_fused_kernel_keeps_no_table_inside_itself_either():
    """An operation that does looks the same from outside: its largest tensor is its output, too."""
    growth = {}
    for attend in (stores_all_scores, F.scaled_dot_product_attention):
        sizes = []
        for T in (512, 2048):
            q = torch.zeros(1, 2, T, 64)
            sizes.append(most_held(lambda attend=attend, q=q: attend(q, q, q)))
        growth[attend] = sizes[1] / sizes[0]
    assert growth[stores_all_scores] > 12
    assert growth[F.scaled_dot_product_attention] < 6


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [("float32", (4, 4, 8, 0)), ("autocast", (4, 4, 8, 0)), ("16-bit weights", (2, 2, 8, 4))],
)
def test_each_recipe_of_mixed_precision_has_its_own_bill(recipe, expected):
    *kept, activations = efficiency.training_bytes(recipe).values()
    assert tuple(kept) == expected
    assert activations > 0


def test_a_cache_that_forgets_is_found_out(monkeypatch):
    assert efficiency.cached_equals_whole(0, torch.float64) < 1e-12
    forward = DecoderOnly.forward

    def forgets(model, ids, cache=None, **others):  # a cache that does not know the keys before
        return forward(model, ids, cache=model.new_cache() if cache else None, **others)

    monkeypatch.setattr(DecoderOnly, "forward", forgets)
    assert efficiency.cached_equals_whole(0) > 1e-4


@pytest.mark.parametrize(
    ("dtype", "least", "most"), [(torch.float32, 0, 0), (torch.bfloat16, 0.005, 0.03), (torch.float16, 0, 0.005)]
)
def test_how_many_choices_the_cache_changes_depends_on_the_16_bit_format(dtype, least, most):
    """A bound on the logits alone confirmed the claim with bfloat16, and would have refuted it with float16."""
    changed, positions = efficiency.changed_by_cache(0, dtype)
    assert positions > 1500
    assert least <= changed / positions <= most
    assert changed > 0 or dtype == torch.float32


def test_a_claim_about_the_cache_is_quoted_with_its_conditions():
    quote = find("efficiency.cache_equal").source.quote
    assert "especially in the format the model was NOT meant to be used" in quote
    assert "greedy decoding often selects the same token" in quote


def test_a_whole_layer_that_is_not_quadratic_keeps_the_claim_from_being_confirmed():
    """The kernel alone confirmed it."""
    assert find("efficiency.time_exponent").decide(kernel=2.1, short=1.8, layer=1.5) == "depends"


@pytest.mark.parametrize("power", [1.0, 2.0, 2.5])
def test_the_slope_finds_the_power(power):
    lengths = (3, 10, 17, 400)
    assert efficiency.slope(lengths, [0.7 * length**power for length in lengths]) == pytest.approx(power)


def test_attention_with_its_linear_layers_has_more_operations_than_a_plain_recurrent_layer():
    """The comparison with T² · d leaves them out."""
    plain, lstm = recorded()["efficiency.rnn"].figures["operations"]
    d, T = 64, 32
    assert plain == (4 * d * d + 2 * T * d) / (2 * d * d)
    assert lstm == (4 * d * d + 2 * T * d) / (8 * d * d)


def test_what_is_counted_is_not_marked_as_timed():
    assert {each.id for each in in_order([chapter_of("efficiency").number]) if each.timed} == {
        "efficiency.time_exponent",
        "efficiency.cache_time",
        "efficiency.rnn",
    }


@pytest.mark.proof
def test_the_script_of_the_chapter_trains_alike_in_one_process_and_in_two(tmp_path, monkeypatch, capsys):
    script = Path(processes.__file__).read_text(encoding="utf-8")
    # A group that outlives its end keeps threads, and those abort Python's own end now and then.
    left = "import os, psutil\nopen('left' + os.environ['RANK'], 'w').write(str(psutil.Process().num_threads()))\n"
    (tmp_path / "train.py").write_text(script + left, encoding="utf-8")
    two = subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "train.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    for name, value in {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "localhost", "MASTER_PORT": port}.items():
        monkeypatch.setenv(name, str(value))  # what torchrun tells a process
    exec(script, {"__name__": "__main__"})
    out, errors = two.communicate(timeout=120)
    assert two.returncode == 0, errors
    alone, together = (float(re.search(r"loss ([\d.]+) with", said)[1]) for said in (capsys.readouterr().out, out))
    assert "2 process" in out
    assert [(tmp_path / f"left{rank}").read_text() for rank in (0, 1)] == ["1", "1"]
    assert alone == pytest.approx(together, abs=2e-3)
    assert alone < 2, "ln 5 = 1.61 is the least for five even tokens; it began at ln 50 = 3.9"
