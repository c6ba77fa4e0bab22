"""Claims of chapter 15: what loading can get wrong unnoticed, and what an attention map can and cannot show."""

import statistics
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib.chapters.pretrained.fine_tuning import GENTLE, RATES, SAME, STEPS, fine_tuned, forgotten_at
from course_lib.claims.interventions import patch, swap
from course_lib.claims.registry import Finding, Source, experiment
from course_lib.claims.tinytown import HELD_OUT_SEED
from course_lib.config import TransformerConfig
from course_lib.encoder_decoder import EncoderOnly
from course_lib.gpt import DecoderOnly, evaluating
from course_lib.hub.checkpoints import from_hf_state_dict, tied_names
from course_lib.hub.names import their_name
from course_lib.pretrained import load_pretrained
from course_lib.sampling import generate
from course_lib.tinytown import Tinytown, WordTokenizer, join_words, split_words
from course_lib.trace import trace
from course_lib.training import story_losses

SEEDS = (0, 1, 2)
STORIES = 24  # per seed, for a loss


def mean_loss(model: nn.Module, tokenizer: WordTokenizer, seed: int = 0, n_stories: int = STORIES) -> float:
    """Return the loss in nats per predicted token on held-out stories."""
    nats, tokens = story_losses(model, [tokenizer.encode(story) for story in _held_out(seed, n_stories)])
    return (nats.sum() / tokens.sum()).item()


@cache
def _held_out(seed: int, n_stories: int) -> list[str]:
    return Tinytown(HELD_OUT_SEED + seed).sample(n_stories)


# ---------------------------------------------------------------------------------------------- a model as others write
def gpt2_layout(model: DecoderOnly) -> tuple[dict[str, Tensor], dict]:
    """Return a decoder of ours as Hugging Face's GPT-2 would be written: (tensors by their names, configuration).

    The way back from `from_hf_state_dict`: linear layers turned to (in, out), and q, k and v in one matrix.
    Errors: ValueError if the model is not of GPT-2's kind (learned positions, LayerNorm before each part, biases).
    """
    config = model.config
    kind = {"family": "decoder", "positions": "learned", "norm": "layer", "norm_position": "pre", "bias": True}
    if other := {field: getattr(config, field) for field, value in kind.items() if getattr(config, field) != value}:
        raise ValueError(f"only a model of GPT-2's kind can be written as one: this has {other}, GPT-2 has {kind}")
    tied = tied_names(model)
    tensors: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        if name in tied:
            continue
        name = their_name(name, "gpt2")
        tensor = tensor.T if tensor.dim() == 2 and name.startswith("h.") else tensor
        if ".c_attn." in name:  # q, k and v come in this order
            name = name.replace(".q.", ".").replace(".k.", ".").replace(".v.", ".")
            tensor = torch.cat([tensors[name], tensor], dim=-1) if name in tensors else tensor
        tensors[name] = tensor.contiguous()
    settings = {"model_type": "gpt2", "vocab_size": config.vocab_size, "n_positions": config.max_seq_len}
    settings |= {"n_embd": config.d_model, "n_layer": config.n_layers, "n_head": config.n_heads, "n_inner": config.d_ff}
    settings |= {"activation_function": {"gelu_tanh": "gelu_new"}.get(config.activation, config.activation)}
    settings |= {"layer_norm_epsilon": config.norm_eps, "tie_word_embeddings": config.tie_weights}
    settings |= dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), config.dropout)
    return tensors, settings


def makes_sense(
    model: DecoderOnly, tokenizer: WordTokenizer, seed: int, n_texts: int = 20, n_tokens: int = 20
) -> float:
    """Return the share of texts, drawn at T = 1 after "once there was a", that Tinytown could have told."""
    town, start = Tinytown(), torch.tensor([tokenizer.encode("once there was a", end=False)] * n_texts)
    generator = torch.Generator().manual_seed(seed)
    ids = generate(model, start, n_tokens, stop=tokenizer.eos_id, generator=generator)
    sensible = 0
    for row in cast(Tensor, ids).tolist():
        text = row[: row.index(tokenizer.eos_id)] if tokenizer.eos_id in row else row
        with suppress(ValueError):  # raised where no story begins like this
            sensible += "<eos>" in town.next_word(tokenizer.decode(text)) or len(text) == len(row)
    return sensible / n_texts


def mistaken(mistake: str) -> DecoderOnly:
    """Return the Tinytown model, written as GPT-2 would be and read back with one of MISTAKES."""
    tensors, settings = gpt2_layout(load_pretrained("tinytown")[0])
    if mistake == "square matrices not transposed":
        tensors |= {name: each.T.contiguous() for name, each in tensors.items() if name.endswith("attn.c_proj.weight")}
    return cast(DecoderOnly, from_hf_state_dict("gpt2", tensors, settings | MISTAKES[mistake]))


MISTAKES: dict[str, dict] = {  # what stands wrongly in the configuration
    "none": {},
    "square matrices not transposed": {},
    "8 heads instead of 4": {"n_head": 8},
    "ReLU instead of GELU": {"activation_function": "relu"},
}


@experiment(
    "pretrained.small_mistake",
    claim="If a model with loaded weights produces coherent text, they were loaded right: a tiny mistake would make it "
    "fail.",
    source=Source(
        "Raschka 2024",
        "Build a Large Language Model (From Scratch), § 5.5",
        "https://github.com/rasbt/LLMs-from-scratch/blob/main/ch05/01_main-chapter-code/ch05.ipynb",
    ),
    control="The same weights loaded right, the same beginning and seeds; three mistakes that no check of names and "
    "shapes can see.",
    threshold="Fail is: less than half as many of the texts make sense, on average over the seeds. Confirmed if every "
    "mistake makes the model fail, refuted if none does, else it depends.",
    seeds=SEEDS,
)
def small_mistake() -> Finding:
    """Measure the share of drawn texts that Tinytown could have told, loaded right and with each mistake."""
    tokenizer = load_pretrained("tinytown")[1]
    shares = {name: [makes_sense(mistaken(name), tokenizer, seed) for seed in SEEDS] for name in MISTAKES}
    means = {name: statistics.fmean(found) for name, found in shares.items()}
    fails = [means[name] < means["none"] / 2 for name in MISTAKES if name != "none"]
    return Finding(
        "texts that make sense: loaded right about "
        + ", ".join(f"{name} {10 * round(10 * share)} %" for name, share in means.items()).removeprefix("none "),
        tuple(shares["8 heads instead of 4"]),
        "confirmed" if all(fails) else "depends" if any(fails) else "refuted",
        "Some mistakes ruin a model, others cost it little, and coherent text comes all the same: compare the numbers "
        "with those of the model that you copied.",
    )


UNSEEN = 0.05  # a rise of the loss that two samples of 20 stories differ by as well


@experiment(
    "pretrained.missing_tensor",
    claim="If some weights are newly initialized, train the model before you use it for predictions.",
    source=Source(
        "Hugging Face",
        "transformers, the warning of from_pretrained (modeling_utils.py)",
        "https://github.com/huggingface/transformers/blob/v4.40.0/src/transformers/modeling_utils.py",
    ),
    control="The same model and stories with all matrices loaded; one matrix at a time is left as it was drawn.",
    threshold=f"Unseen is: the loss rises by less than {UNSEEN:.0%}. Confirmed if no gap stays unseen, refuted if more "
    "than half do, else it depends.",
    seeds=SEEDS,
)
def missing_tensor() -> Finding:
    model, tokenizer = load_pretrained("tinytown")
    matrices = [name for name, tensor in model.named_parameters() if tensor.dim() == 2 and name.startswith("blocks.")]
    reference, unseen = mean_loss(model, tokenizer, n_stories=20), []
    for seed in SEEDS:
        torch.manual_seed(seed)
        fresh = DecoderOnly(model.config)
        losses = []
        for name in matrices:
            learned = model.get_parameter(name).data
            model.get_parameter(name).data = fresh.get_parameter(name).data
            losses.append(mean_loss(model, tokenizer, n_stories=20))
            model.get_parameter(name).data = learned
        unseen.append(statistics.fmean(loss < (1 + UNSEEN) * reference for loss in losses))
    share = statistics.fmean(unseen)
    return Finding(
        f"of {len(matrices)} matrices, left one at a time as they were drawn, {10 * round(10 * share)} % raise the "
        f"loss by less than {UNSEEN:.0%}",
        tuple(unseen),
        "refuted" if share > 0.5 else "depends" if share > 0 else "confirmed",
        "The other parts carry the text past some gaps, and then no loss warns you: a loader must count, every tensor "
        "used, every part filled.",
    )


# -------------------------------------------------------------------------------------------------- what a map can show
IT_STORY = "once there was a king called tom . the {animal} sat on the {thing} because it was {why} . yes , the"
PAIRS = (("cat", "mat", "tired", "soft"), ("dog", "sofa", "hungry", "warm"), ("owl", "box", "clever", "new"))


def rows_that_differ(model: DecoderOnly | EncoderOnly, one: Sequence[int], other: Sequence[int]) -> Tensor:
    """Compare two texts of equal length: the largest difference between their attention rows at each position, (T,),
    over all heads.

    Errors: ValueError if the texts have different lengths.
    """
    if len(one) != len(other):
        raise ValueError(f"the two texts must have equally many tokens, got {len(one)} and {len(other)}")
    maps = []
    for ids in (one, other):
        with evaluating(model), trace(model, "*.weights") as seen:
            model(torch.tensor([ids]))
        maps.append(torch.stack([weights[0] for weights in seen.values()]))  # (L, H, T, T)
    return (maps[0] - maps[1]).abs().amax(dim=(0, 1, 3))


def it_texts(tokenizer: WordTokenizer) -> list[tuple[list[int], list[int], int]]:
    """Return three pairs of texts that differ in one adjective after “it”: (ids, ids, position of “it”)."""
    pairs = []
    for animal, thing, tired, soft in PAIRS:
        texts = [IT_STORY.format(animal=animal, thing=thing, why=why) for why in (tired, soft)]
        one, other = (tokenizer.encode(text, end=False) for text in texts)
        pairs.append((one, other, one.index(tokenizer.id("it"))))
    return pairs


@experiment(
    "pretrained.it_in_a_decoder",
    claim="Self-attention lets “it” attend to the animal if that was too tired, to the street if that was too wide.",
    source=Source(
        "Uszkoreit 2017",
        "Transformer: A Novel Neural Network Architecture for Language Understanding",
        "https://research.google/blog/transformer-a-novel-neural-network-architecture-for-language-understanding/",
    ),
    control="The same pairs of texts, which differ in one later word, read by a causal decoder (trained) and by "
    "encoders of the same size (drawn at random).",
    threshold="Confirmed if the attention rows of “it” differ in both, depends if in the encoders alone, refuted if in "
    "neither.",
    seeds=SEEDS,
)
def it_in_a_decoder() -> Finding:
    """Measure the largest difference between the rows of “it” in two texts that differ in one later word."""
    model, tokenizer = load_pretrained("tinytown")
    pairs, encoders = it_texts(tokenizer), []
    for seed in SEEDS:
        torch.manual_seed(seed)
        config = TransformerConfig.from_dict(model.config.to_dict() | {"family": "encoder"})
        encoder = EncoderOnly(config).eval()
        encoders.append(max(rows_that_differ(encoder, one, other)[it].item() for one, other, it in pairs))
    decoder = max(rows_that_differ(model, one, other)[it].item() for one, other, it in pairs)
    at_end = statistics.fmean(rows_that_differ(model, one, other)[-1].item() for one, other, _ in pairs)
    return Finding(
        f"largest difference between the attention rows of “it”: {decoder:.1f} in the decoder, more than 0 in "
        f"{sum(found > 0 for found in encoders)} of {len(encoders)} encoders; at the decoder's last word {at_end:.1f}",
        (decoder, *encoders),
        "refuted" if max(encoders) == 0 else "confirmed" if decoder > 0 else "depends",
        "The picture is of an encoder, which reads both ways. In a causal model no row can depend on a later word: "
        "there the answer is worked out after the adjective.",
    )


def weight_on_first(weights: Tensor) -> list[tuple[float, Tensor]]:
    """Return the weight on the first token, in the first half of the positions and in the second: two pairs (even
    share, (L, H)).

    weights: (L, H, T, T). An even share is 1 over the number of positions that may be seen, averaged over the half. The
    very first position is left out: in a causal model it sees nothing else.
    """
    T, seen = weights.shape[-1], (weights > 0).flatten(0, 1).any(dim=0).sum(dim=-1)  # (T,): by some head
    halves = slice(1, T // 2), slice(T // 2, T)
    return [((1 / seen[half]).mean().item(), weights[:, :, half, 0].mean(dim=-1)) for half in halves]


def rank_correlation(one: Tensor, other: Tensor) -> float:
    """Return Spearman's correlation of the ranks, 1 for the same order, −1 for the reverse. Source: Spearman 1904."""
    ranks = torch.stack([values.argsort().argsort().double() for values in (one, other)])
    return torch.corrcoef(ranks)[0, 1].item()


def matched_swaps(
    town: Tinytown, words: Sequence[str], generator: torch.Generator, most: int = 3
) -> dict[str, list[str]]:
    """Return the words of the beginning of a story that can be exchanged for others wherever they stand, so that it
    stays one that Tinytown could tell: word -> up to `most` others.
    """
    swaps: dict[str, list[str]] = {}
    for word in dict.fromkeys(words):
        options = sorted(town.next_word(join_words(words[: words.index(word)])).keys() - {word, "<eos>"})
        order = torch.randperm(len(options), generator=generator).tolist()[: 2 * most]
        for other in (options[i] for i in order):
            with suppress(ValueError):  # raised where no story begins like this
                town.next_word(join_words([other if each == word else each for each in words]))
                swaps.setdefault(word, []).append(other)
    return {word: others[:most] for word, others in swaps.items()}


def weights_and_influence(seed: int, n_stories: int = 16) -> tuple[float, float, float]:
    """Return the mean rank correlations over stories, of a word's influence with its weight, of its influence with how
    late it stands, and of its weight with how late it stands.

    Influence: how far the prediction moves, in nats (KL), if the word is exchanged for another that fits. Weight: from
    the last word, averaged over all heads of all layers, summed over the word's places. Each story is cut at a word
    drawn from its second half; stories with fewer than five words that can be exchanged are left out.
    """
    model, tokenizer = load_pretrained("tinytown")
    town, generator = Tinytown(), torch.Generator().manual_seed(seed)
    found = []
    for story in _held_out(seed, n_stories):
        words = split_words(story)
        words = words[: int(torch.randint(len(words) // 2, len(words) - 1, (1,), generator=generator))]
        swaps = matched_swaps(town, words[:-1], generator)
        if len(swaps) < 5:
            continue
        ids = torch.tensor([tokenizer.encode(join_words(words), end=False)])  # (1, T)
        weight = torch.stack(model.attention_weights(ids))[:, 0, :, -1].mean(dim=(0, 1))  # (T,)
        with evaluating(model):
            before = model(ids)[0, -1].log_softmax(dim=-1)  # (V,)
            rows = []
            for word, others in swaps.items():
                here = ids[0] == tokenizer.id(word)  # (T,)
                changed = torch.stack([ids[0].masked_fill(here, tokenizer.id(other)) for other in others])
                after = model(changed)[:, -1].log_softmax(dim=-1)  # (R, V)
                moved = (before.exp() * (before - after)).sum(dim=-1).mean().item()
                rows.append((moved, weight[here].sum().item(), here.nonzero().max().item()))
        moved, looked, late = torch.tensor(rows, dtype=torch.float64).T
        found.append([rank_correlation(*pair) for pair in ((moved, looked), (moved, late), (looked, late))])
    return cast(tuple[float, float, float], tuple(statistics.fmean(column) for column in zip(*found)))


@experiment(
    "pretrained.weights_as_influence",
    claim="Attention weights communicate the relative importance of the inputs.",
    source=Source(
        "Jain & Wallace 2019",
        "Attention is not Explanation, abstract (how weights are often presented, which they test)",
        "https://arxiv.org/abs/1902.10186",
    ),
    control="Words exchanged for others that fit, so that every text stays one of Tinytown's; and a rule that looks at "
    "no weights at all: the later a word stands, the more important.",
    threshold="Rank correlation with the influence, on average over the seeds: confirmed if above 0.9, refuted if the "
    "weights rank no better than lateness alone (within 0.05), else it depends.",
    seeds=SEEDS,
)
def weights_as_influence() -> Finding:
    """Measure how well the weights rank the words by influence, and how well their positions alone do."""
    weights, lateness, both = zip(*(weights_and_influence(seed) for seed in SEEDS))
    by_weight, by_place = statistics.fmean(weights), statistics.fmean(lateness)
    return Finding(
        f"rank correlation of a word's influence with its weight {by_weight:.1f}, with how late it stands "
        f"{by_place:.1f} (weight with lateness {statistics.fmean(both):.1f})",
        tuple(weights),
        "confirmed" if by_weight > 0.9 else "refuted" if by_weight < by_place + 0.05 else "depends",
        "A weight says how much of a value is fetched at one step, not what it holds or what later layers do with it. "
        "To know what a word does, exchange it.",
    )


# ----------------------------------------------------------------------------------------------------- sentence vectors
def topic_vectors(model: DecoderOnly, tokenizer: WordTokenizer, stories: Sequence[str]) -> tuple[Tensor, list[str]]:
    """Return the lines of these stories as vectors of length 1, (N, d_model), and the topic of each.

    A line's vector is the mean of its tokens' final hidden states, read in the whole story.
    """
    town, vectors, topics = Tinytown(), [], []
    for story in stories:
        with evaluating(model), trace(model, "final_norm") as seen:
            model(torch.tensor([tokenizer.encode(story)]))
        for step in town.parse(story):
            places = slice(1 + step.start, 1 + step.start + len(step.line.words))  # 1: <bos> stands in front
            vectors.append(seen["final_norm"][0, places].mean(dim=0))
            topics.append(step.line.topic)
    return F.normalize(torch.stack(vectors), dim=-1), topics


def nearest_has_the_topic(vectors: Tensor, topics: Sequence[str]) -> float:
    """Return the share of the lines whose nearest other line is about the same."""
    similarity = vectors @ vectors.T
    nearest = similarity.fill_diagonal_(-1).argmax(dim=-1)
    return statistics.fmean(topics[i] == topics[int(j)] for i, j in enumerate(nearest))


def lines_by_words(tokenizer: WordTokenizer, stories: Sequence[str], table: Tensor) -> Tensor:
    """Return the lines of these stories as vectors of length 1: the sum of their words' rows of a table (V, D), (N, D).

    With the identity as the table, words are counted."""
    town = Tinytown()
    lines = [
        split_words(story)[step.start : step.start + len(step.line.words)]
        for story in stories
        for step in town.parse(story)
    ]
    rows = [table[[tokenizer.id(word) for word in words]].sum(dim=0) for words in lines]
    return F.normalize(torch.stack(rows), dim=-1)


def topics_found(seed: int) -> dict[str, float]:
    """Return the share of the lines whose nearest other line is about the same, by how the vectors are made."""
    model, tokenizer = load_pretrained("tinytown")
    stories = _held_out(seed, STORIES)
    torch.manual_seed(seed)
    fresh = DecoderOnly(TransformerConfig.from_dict(model.config.to_dict())).eval()
    trained, topics = topic_vectors(model, tokenizer, stories)
    untrained, _ = topic_vectors(fresh, tokenizer, stories)
    counted = lines_by_words(tokenizer, stories, torch.eye(len(tokenizer)))
    table = lines_by_words(tokenizer, stories, model.token_embedding.weight.detach())
    ways = {"trained": trained, "trained table alone": table, "words counted": counted, "untrained": untrained}
    chance = sum((topics.count(topic) / len(topics)) ** 2 for topic in set(topics))
    return {way: nearest_has_the_topic(vectors, topics) for way, vectors in ways.items()} | {"chance": chance}


@experiment(
    "pretrained.grouped_sentences",
    claim="Trained sentence vectors gain surprisingly little over random ones made from the same word vectors.",
    source=Source(
        "Wieting & Kiela 2019",
        "No Training Required: Exploring Random Encoders for Sentence Classification, abstract",
        "https://arxiv.org/abs/1901.10444",
    ),
    control="The same lines by four other ways: the trained table's rows summed, without any encoder; words counted, "
    "without any model; the whole model drawn at random; chance.",
    threshold="Confirmed if the trained model finds the topic of at most 5 % more lines than the table's rows summed, "
    "on average over the seeds; refuted if of more than 20 %; else it depends.",
    seeds=SEEDS,
)
def grouped_sentences() -> Finding:
    """Measure in how many cases the nearest other line is about the same thing."""
    found = [topics_found(seed) for seed in SEEDS]
    shares = {way: statistics.fmean(each[way] for each in found) for way in found[0]}
    gain = shares["trained"] - shares["trained table alone"]
    return Finding(
        "nearest line is about the same: " + ", ".join(f"{way} {100 * share:.0f} %" for way, share in shares.items()),
        tuple(each["trained"] for each in found),
        "confirmed" if gain < 0.05 else "refuted" if gain > 0.2 else "depends",
        "Lines about one thing share words, and counting them is enough here. An untrained network is no fair control "
        "by itself: it can be worse than no network.",
    )


# --------------------------------------------------------------------------------------------- what training brought
def lead(logits: Tensor, animal: int, thing: int) -> Tensor:
    """Return how far the animal leads the thing after the last token, in nats: logits (B, T, V) -> (B,)."""
    return logits[:, -1, animal] - logits[:, -1, thing]


def referents_right(model: DecoderOnly, it: str = "it", exchanged: bool = False) -> float:
    """Return the share of six texts after which the right noun is the most probable token.

    it: what stands in the place of “it”. exchanged: the nouns have changed places: “the mat sat on the cat”.
    """
    _, tokenizer = load_pretrained("tinytown")
    right = []
    for animal, thing, tired, soft in PAIRS:
        first, second = (thing, animal) if exchanged else (animal, thing)
        for why, noun in ((tired, animal), (soft, thing)):
            text = IT_STORY.format(animal=first, thing=second, why=why).replace(" it ", f" {it} ")
            ids = torch.tensor([tokenizer.encode(text, end=False)])
            with evaluating(model):
                right.append(model(ids)[0, -1].argmax().item() == tokenizer.id(noun))
    return statistics.fmean(right)


def carried(model: DecoderOnly, at: str, positions: Sequence[int] | None = None) -> float:
    """Return the share of the answer that one part carries: how far the lead moves if the part is taken from the run on
    the other adjective, as a share of how far it moves if the adjective itself is exchanged. Mean over three pairs of
    texts.
    """
    _, tokenizer = load_pretrained("tinytown")
    shares = []
    for (one, other, it), (animal, thing, *_) in zip(it_texts(tokenizer), PAIRS):
        ids, source, nouns = torch.tensor([one]), torch.tensor([other]), (tokenizer.id(animal), tokenizer.id(thing))
        adjective = it + 2  # “it was tired”
        whole = lead(swap(model, ids, adjective, other[adjective]), *nouns).item()
        shares.append(lead(patch(model, ids, source, at, positions), *nouns).item() / whole)
    return statistics.fmean(shares)


STAND_INS = ("he", "so", ".", "to")  # none of them points at the cat or the mat


@experiment(
    "pretrained.referent_learned",
    claim="A language model learns what “it” stands for without any supervision, from predicting the next word.",
    source=Source(
        "Radford et al. 2019",
        "Language Models are Unsupervised Multitask Learners, abstract and § 3.4 (Winograd Schema Challenge)",
        "https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf",
    ),
    control="The same architecture untrained; and the same texts with another word in the place of “it”, and with the "
    "two nouns exchanged.",
    threshold="Confirmed if the trained model finds the right noun in at least 9 of 10 texts, the untrained ones in at "
    "most 7, and without “it” it finds it less often; depends if it finds it as often without “it”; else refuted.",
    seeds=SEEDS,
)
def referent_learned() -> Finding:
    """Measure six texts in which an adjective after “it” decides between two nouns."""
    model, _ = load_pretrained("tinytown")
    trained, untrained = referents_right(model), []
    for seed in SEEDS:
        torch.manual_seed(seed)
        untrained.append(referents_right(DecoderOnly(model.config).eval()))
    replaced = statistics.fmean(referents_right(model, it=word) for word in STAND_INS)
    exchanged = referents_right(model, exchanged=True)
    found = trained >= 0.9 and max(untrained) <= 0.7
    return Finding(
        f"right noun: {trained:.0%} of the texts, untrained {statistics.fmean(untrained):.0%}; with another word in "
        f"the place of “it” {replaced:.0%}; with the two nouns exchanged {exchanged:.0%}",
        (trained, *untrained),
        "refuted" if not found else "confirmed" if replaced < trained else "depends",
        "Training has taught which noun the answer needs: the one that stands where this adjective's nouns stand. The "
        "word “it” plays no part in it.",
    )


# ------------------------------------------------------------------------------------------------------- a second town
@experiment(
    "pretrained.lora_forgets",
    claim="LoRA better maintains the base model's performance on tasks outside the target domain than full fine-tuning "
    "does.",
    source=Source(
        "Biderman et al. 2024",
        "LoRA Learns Less and Forgets Less, abstract",
        "https://arxiv.org/abs/2405.09673",
    ),
    control="The same model, stories, batches and number of steps for both, each at that of three learning rates "
    "which brings the lowest loss in the second town; and LoRA once more at a gentler one.",
    threshold="Forgets less is: a lower loss in Tinytown, by more than 0.1 nats, in every seed. Confirmed if LoRA does "
    f"so when both have come down to {SAME} nats in the second town; depends if it does so at the gentler rate alone, "
    "after equally many steps; else refuted.",
    seeds=SEEDS,
)
def lora_forgets() -> Finding:
    """Measure what is forgotten of Tinytown: after equally much of the second town, and after equally many steps."""
    whole, thin = ([fine_tuned(way, seed)[1] for seed in SEEDS] for way in RATES)
    gentle = [fine_tuned("lora", seed, GENTLE)[1] for seed in SEEDS]
    at_same = [[forgotten_at(seen, SAME) for seen in runs] for runs in (whole, thin)]
    saved = [one - other for one, other in zip(*at_same)]
    ends = [[seen[-1] for seen in runs] for runs in (whole, thin, gentle)]
    spared = [one - other for (_, one), (_, other) in zip(ends[0], ends[2])]
    (new, old), (_, fast), (little, kept) = ([statistics.fmean(each) for each in zip(*runs)] for runs in ends)
    return Finding(
        f"nats in Tinytown {whole[0][0][1]:.1f} before; at {SAME} in the second town "
        f"{statistics.fmean(at_same[0]):.1f} with all weights, {statistics.fmean(at_same[1]):.1f} with LoRA; after "
        f"{STEPS} steps {old:.1f} and {fast:.1f}, and {kept:.1f} with the gentler LoRA, which has learned less "
        f"({little:.1f} in the second town, all weights {new:.1f})",
        tuple(saved),
        "confirmed" if min(saved) > 0.1 else "depends" if min(spared) > 0.1 else "refuted",
        "LoRA forgets less where it learns less. For the same gain it has not kept more here; few trained numbers are "
        "no small change.",
    )
