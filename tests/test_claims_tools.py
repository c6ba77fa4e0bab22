"""What the experiments of several chapters share: models that spell, and times side by side."""

from types import SimpleNamespace

import torch

from course_lib.claims import letters, timing


def test_without_the_bend_a_feed_forward_network_is_linear():
    model, _ = letters.train_on_letters(seed=0, steps=1, nonlinearity=False)
    flat = model.blocks[0].feed_forward
    x, y, zero = torch.randn(5, 32), torch.randn(5, 32), torch.zeros(5, 32)
    torch.testing.assert_close(flat(x + y) + flat(zero), flat(x) + flat(y))


def test_the_same_seed_trains_the_same_model():
    losses = [letters.train_on_letters(seed, steps=3)[1] for seed in (0, 0, 1)]
    assert losses[0] == losses[1] != losses[2]


def test_held_out_targets_are_the_next_letters():
    inputs, targets = letters.held_out_letters()
    assert torch.equal(inputs[:, 1:], targets[:, :-1])


def test_the_shortest_time_of_each_function_counts_and_the_first_round_does_not(monkeypatch):
    clock = iter([0, 0, 0, 5, 0, 4, 0, 3, 0, 8])  # the first round only starts the clock
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    called = []
    assert timing.best_seconds([lambda: called.append(0), lambda: called.append(1)], rounds=2) == [3, 4]
    assert called == [0, 1] * 3
