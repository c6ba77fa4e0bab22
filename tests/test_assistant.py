"""The parts of chapter 16, against brute force, closed forms, PyTorch and properties."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from course_lib.assistant import (
    ASSISTANT,
    TEMPLATE,
    USER,
    add_tokens,
    answer_targets,
    best_of_n_divergence,
    best_policy,
    divergence,
    dpo_loss,
    group_advantages,
    log_probs_of,
)
from course_lib.chapters.assistant.methods import (
    base_model,
    best_of,
    compared,
    expected_product,
    frontier,
    learned_reward,
    log_p,
    says,
    tell,
    two_valued,
)
from course_lib.config import TransformerConfig
from course_lib.gpt import DecoderOnly
from course_lib.tinytown import Tinytown, grammar, split_words
from course_lib.tinytown.world import ANIMAL_SOUNDS

CONFIG = TransformerConfig(vocab_size=11, d_model=16, n_heads=2, n_layers=2, max_seq_len=12)


class TestAddTokens:
    def test_the_old_tokens_keep_their_logits_and_the_new_ones_take_part_in_training(self):
        model = DecoderOnly(CONFIG).eval()
        wider = add_tokens(model, 2)
        ids = torch.randint(11, (3, 7))
        torch.testing.assert_close(wider(ids)[..., :11], model(ids))
        assert wider.config.vocab_size == 13
        assert wider.output.weight is wider.token_embedding.weight
        _, loss = wider(torch.tensor([[11, 12, 3]]), torch.tensor([[12, 3, 4]]))
        loss.backward()
        assert (wider.token_embedding.weight.grad[11:].norm(dim=1) > 0).all()

    def test_a_new_row_is_the_mean_of_the_old_ones(self):
        model = DecoderOnly(CONFIG)
        table = add_tokens(model, 3).token_embedding.weight
        torch.testing.assert_close(table[11:], model.token_embedding.weight.mean(0).expand(3, -1))

    def test_the_model_that_was_given_does_not_change(self):
        model = DecoderOnly(CONFIG)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        wider = add_tokens(model, 1)
        with torch.no_grad():
            for parameter in wider.parameters():
                parameter.add_(1)
        assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())

    def test_an_untied_head_is_refused(self):
        untied = DecoderOnly(TransformerConfig.from_dict(CONFIG.to_dict() | {"tie_weights": False}))
        with pytest.raises(ValueError, match="tied"):
            add_tokens(untied, 1)


class TestAnswerTargets:
    def test_a_worked_example(self):
        ids = torch.tensor([[1, 90, 7, 8, 91, 5, 2, 0]])
        roles = torch.tensor([[TEMPLATE, TEMPLATE, USER, USER, TEMPLATE, ASSISTANT, ASSISTANT, TEMPLATE]])
        assert answer_targets(ids, roles).tolist() == [[-100, -100, -100, -100, 5, 2, -100, -100]]

    @given(st.integers(0, 10**6))
    def test_each_target_is_the_next_id_exactly_where_the_assistant_wrote_it(self, seed):
        rng = torch.Generator().manual_seed(seed)
        ids, roles = torch.randint(50, (3, 9), generator=rng), torch.randint(3, (3, 9), generator=rng)
        targets = answer_targets(ids, roles)
        for b, t in itertools.product(range(3), range(9)):
            spoken = t < 8 and roles[b, t + 1] == ASSISTANT
            assert targets[b, t] == (ids[b, t + 1] if spoken else -100)

    def test_an_unknown_role_is_refused(self):
        with pytest.raises(ValueError, match="roles must be 0"):
            answer_targets(torch.ones(2, 5, dtype=torch.int64), torch.full((2, 5), 3))

    @pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.float32])
    def test_ids_that_could_not_be_minus_100_are_refused(self, dtype, as_a_learner):
        ids = torch.zeros(1, 3, dtype=torch.int64)
        with pytest.raises(ValueError, match="whole numbers"):
            answer_targets(ids.to(dtype), ids)


class TestLogProbs:
    @pytest.mark.parametrize("targets", [torch.tensor([[1, 2]]), torch.tensor([[1, 2, 11]]), torch.ones(1, 3)])
    def test_targets_that_do_not_belong_to_the_ids_are_refused(self, targets, as_a_learner):
        with pytest.raises(ValueError, match="targets"):
            log_probs_of(DecoderOnly(CONFIG), torch.tensor([[1, 2, 3]]), targets)

    def test_it_is_the_sum_of_the_log_probabilities_of_the_targets(self):
        model = DecoderOnly(CONFIG).eval()
        ids, targets = torch.randint(11, (3, 6)), torch.randint(11, (3, 6))
        targets[0, 2:] = targets[2, 0] = -100
        log_p = model(ids).log_softmax(-1)
        sums = [sum(log_p[b, t, targets[b, t]] for t in range(6) if targets[b, t] != -100) for b in range(3)]
        torch.testing.assert_close(log_probs_of(model, ids, targets), torch.stack(sums))


class TestBestPolicy:
    @given(st.integers(0, 10**6), st.floats(0.05, 5))
    def test_no_other_distribution_has_more_reward_minus_price(self, seed, beta):
        rng = torch.Generator().manual_seed(seed)
        base = torch.rand(6, generator=rng, dtype=torch.float64).softmax(0)
        reward = torch.randn(6, generator=rng, dtype=torch.float64)

        def value(p):
            return ((p * reward).sum() - beta * divergence(p, base)).item()

        best = best_policy(base, reward, beta)
        others = torch.rand(50, 6, generator=rng, dtype=torch.float64)
        near = best * (1 + 0.01 * others)
        assert all(value(best) >= value(p / p.sum()) - 1e-12 for p in (*others, *near))
        # The closed form of the optimum: β ln Z.
        assert value(best) == pytest.approx(beta * math.log((base * (reward / beta).exp()).sum()), abs=1e-9)

    def test_a_tiny_price_gives_the_best_outcomes_in_the_proportions_of_the_base(self):
        best = best_policy(torch.tensor([0.5, 0.1, 0.3, 0.1]), torch.tensor([0.0, 1.0, 1.0, 0.5]), 1e-30)
        torch.testing.assert_close(best, torch.tensor([0.0, 0.25, 0.75, 0.0]))

    def test_what_the_base_never_does_stays_impossible(self):
        best = best_policy(torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.0, 1.0, 1e6]), 0.5)
        assert best[2] == 0
        torch.testing.assert_close(best[1], torch.tensor(2.0).sigmoid())

    @pytest.mark.parametrize("beta", [0.0, -1.0, math.nan])
    def test_a_price_that_is_not_positive_is_refused(self, beta):
        with pytest.raises(ValueError, match="beta"):
            best_policy(torch.tensor([0.5, 0.5]), torch.tensor([0.0, 1.0]), beta)

    @pytest.mark.parametrize("reward", [[0.0, torch.nan], [torch.inf, 0.0], [1.0], [[0.0, 1.0]]])
    def test_rewards_that_are_no_row_of_finite_numbers_are_refused(self, reward, as_a_learner):
        with pytest.raises(ValueError, match="reward"):
            best_policy(torch.tensor([0.5, 0.5]), torch.tensor(reward), 1.0)

    def test_a_price_that_is_0_in_the_dtype_of_the_base_is_refused(self):
        base, reward = torch.tensor([[0.5, 0.5], [0.0, 1.0]])
        with pytest.raises(ValueError, match="beta=1e-300 is 0 in"):
            best_policy(base, reward, 1e-300)
        torch.testing.assert_close(best_policy(base.double(), reward.double(), 1e-300), reward.double())


class TestDivergence:
    def test_two_dtypes_are_refused(self):
        with pytest.raises(ValueError, match="dtype"):
            divergence(torch.tensor([0.5, 0.5]), torch.tensor([0.5, 0.5]).double())

    def test_it_is_pytorchs(self):
        p, base = torch.rand(2, 8).softmax(-1)
        theirs = torch.distributions.kl_divergence(*map(torch.distributions.Categorical, (p, base)))
        torch.testing.assert_close(divergence(p, base), theirs)

    def test_it_is_infinite_for_what_the_base_never_does_and_ignores_what_p_never_does(self):
        assert divergence(torch.tensor([0.5, 0.5]), torch.tensor([1.0, 0.0])) == math.inf
        torch.testing.assert_close(
            divergence(torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5])), torch.tensor(2.0).log()
        )


class TestBestOfN:
    @pytest.mark.parametrize("n", [1, 2, 4, 16])
    def test_the_formula_is_the_divergence_when_no_two_rewards_are_equal(self, n):
        # Of V equally probable outcomes, the one at rank i is the best of n with the chance (i/V)^n − ((i−1)/V)^n.
        ranks = torch.arange(100_001, dtype=torch.float64) / 100_000
        best = (ranks**n).diff()
        assert divergence(best, torch.full_like(best, 1e-5)).item() == pytest.approx(best_of_n_divergence(n), abs=1e-4)

    @pytest.mark.parametrize("rate", [0.1, 0.5])
    def test_it_is_too_high_for_a_reward_of_two_values(self, rate):
        assert two_valued(rate, 1 - (1 - rate) ** 8) < best_of_n_divergence(8)

    def test_the_best_of_every_n_is_kept(self):
        stories = torch.arange(6)[:, None]
        assert best_of(stories, torch.tensor([0.0, 2.0, 1.0, 5.0, 5.0, 0.0]), 3).flatten().tolist() == [1, 3]


class TestDPO:
    def test_a_worked_example(self):
        loss, margins = dpo_loss(*(torch.tensor([x]) for x in (-10.0, -12.0, -11.0, -11.0)), beta=0.5)
        torch.testing.assert_close(margins, torch.tensor([1.0]))
        torch.testing.assert_close(loss, torch.tensor(math.log(1 + math.exp(-1))))

    def test_its_minimum_is_the_best_policy_of_the_judges_reward(self):
        """With all pairs, weighted by how often a Bradley–Terry judge prefers each, gradient descent ends at it."""
        base = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
        reward = torch.tensor([0.0, 1.0, -0.5, 2.0], dtype=torch.float64)
        logits = base.log().clone().requires_grad_(True)
        a, b = torch.cartesian_prod(torch.arange(4), torch.arange(4)).T
        weight = base[a] * base[b] * (reward[a] - reward[b]).sigmoid()
        optimizer = torch.optim.LBFGS([logits], lr=1, max_iter=500, tolerance_grad=1e-12, tolerance_change=1e-14)

        def closure():
            optimizer.zero_grad()
            log_p = logits.log_softmax(0)
            _, margins = dpo_loss(log_p[a], log_p[b], base.log()[a], base.log()[b], beta=0.5)
            loss = -(weight * F.logsigmoid(margins)).sum()
            loss.backward()
            return loss

        optimizer.step(closure)
        torch.testing.assert_close(logits.softmax(0), best_policy(base, reward, 0.5), rtol=0, atol=1e-6)

    def test_a_number_that_is_none_is_refused(self):
        pair = torch.tensor([-1.0])
        with pytest.raises(ValueError, match="rejected must be finite"):
            dpo_loss(pair, torch.tensor([torch.nan]), pair, pair, 0.1)


class TestGroupAdvantages:
    @pytest.mark.parametrize("size", [1e-25, 1e-3, 1e3, 1e25])
    def test_the_size_of_the_rewards_makes_no_difference(self, size):
        rewards = torch.tensor([[1.0, 0.0, 0.0, 1.0]])
        torch.testing.assert_close(group_advantages(size * rewards), 2 * rewards - 1)

    def test_each_group_has_mean_0_and_deviation_1(self):
        advantages = group_advantages(torch.randn(5, 8, dtype=torch.float64))
        torch.testing.assert_close(advantages.mean(1), torch.zeros(5).double())
        torch.testing.assert_close(advantages.std(1, correction=0), torch.ones(5).double())

    def test_equal_rewards_teach_nothing(self):
        rewards = torch.tensor([[0.1, 0.1, 0.1], [0.0, 1.0, 0.0]], requires_grad=True)
        advantages = group_advantages(rewards)
        assert advantages[0].tolist() == [0, 0, 0]
        advantages.sum().backward()
        assert rewards.grad.isfinite().all()

    @pytest.mark.parametrize("rewards", [torch.zeros(3, 1), torch.tensor([[0.0, math.nan]])])
    def test_rewards_that_cannot_be_compared_are_refused(self, rewards):
        with pytest.raises(ValueError, match="rewards"):
            group_advantages(rewards)


class TestTheGrammarsOptimum:
    # A smaller grammar: what Tinytown can still tell when only these topics and five sentences are left.
    PLAN = (frozenset({line.topic for line in grammar.LINES}) - {"say", "pet", "weather", "closing"}, 5)

    def every_story(self, plan):
        following = grammar.next_lines(plan)
        if not following:
            yield [], 1.0
        for (line, later), chance in following.items():
            for rest, probability in self.every_story(later):
                yield [line, *rest], chance * probability

    @pytest.mark.parametrize("beta", [0.1, 0.5, 2.0])
    def test_z_is_the_sum_over_all_stories_of_a_smaller_grammar(self, beta):
        stories = list(self.every_story(self.PLAN))
        assert len(stories) > 300
        assert sum(probability for _, probability in stories) == pytest.approx(1)
        z = sum(probability * math.exp(sum(map(says, lines)) / beta) for lines, probability in stories)
        assert expected_product(lambda line: math.exp(says(line) / beta), self.PLAN) == pytest.approx(z, rel=1e-12)

    def test_the_rate_agrees_with_stories_that_are_counted(self):
        exact = 1 - expected_product(lambda line: float(not says(line)))
        stories = Tinytown(seed=3).sample(4000)
        counted = sum(any(word in ANIMAL_SOUNDS.values() for word in split_words(story)) for story in stories) / 4000
        assert counted == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 4000))

    @pytest.mark.parametrize("beta", [0.05, 0.3, 2.0])
    def test_the_frontier_is_the_least_divergence_for_its_share(self, beta):
        share, nats = frontier(0.1, beta)
        assert share == pytest.approx(0.1 * math.exp(1 / beta) / (0.9 + 0.1 * math.exp(1 / beta)))
        assert two_valued(0.1, share) == pytest.approx(nats, abs=1e-9)


class TestRewards:
    def test_a_learned_reward_is_the_share_of_good_stories_among_those_with_the_same_words(self):
        """With one word that decides, a logistic regression has a closed form: the share in each of two groups."""
        kinds = [([1, 5, 6, 2], 1.0)] * 30 + [([1, 6, 5, 2], 0.0)] * 10 + [([1, 6, 7, 2], 1.0)] * 10
        kinds += [([1, 7, 6, 2], 0.0)] * 30
        stories = torch.tensor([ids for ids, _ in kinds])
        reward = learned_reward(stories, torch.tensor([earned for _, earned in kinds]), steps=2000)
        expected = torch.tensor([0.75] * 40 + [0.25] * 40)
        torch.testing.assert_close(reward(stories), expected, atol=0.01, rtol=0)

    def test_a_learned_reward_does_not_see_the_order_of_words_or_how_often_they_occur(self):
        stories = torch.randint(3, 40, (64, 9), generator=torch.Generator().manual_seed(0))
        reward = learned_reward(stories, (stories == 5).any(dim=1).float(), steps=20)
        torch.testing.assert_close(reward(stories.flip(1)), reward(stories))
        torch.testing.assert_close(reward(torch.cat([stories, stories], dim=1)), reward(stories))

    def test_a_judge_prefers_the_good_story_of_each_pair_as_often_as_bradley_and_terry_say(self):
        base = base_model()
        stories = tell(base, 24, torch.Generator().manual_seed(0))
        rewards = (torch.arange(24) < 8).float()  # which ones are good makes no difference here
        generator = torch.Generator().manual_seed(1)
        pairs = compared(base, stories, rewards, 4000, generator, strength=1.5)
        place = {tuple(row): i for i, row in enumerate(stories.tolist())}
        chosen, rejected = ([place[tuple(row)] < 8 for row in rows.tolist()] for rows in (pairs.chosen, pairs.rejected))
        assert all(one != other for one, other in zip(chosen, rejected))
        assert sum(chosen) / 4000 == pytest.approx(1 / (1 + math.exp(-1.5)), abs=0.03)
        with torch.no_grad():
            torch.testing.assert_close(pairs.ref_chosen[:5], log_p(base, pairs.chosen[:5]))
            torch.testing.assert_close(pairs.ref_rejected[:5], log_p(base, pairs.rejected[:5]))
