"""Claims of chapter 15: what loading can get wrong unnoticed, and what an attention map can and cannot show."""

import statistics
from collections.abc import Sequence
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib.claims.registry import Finding, experiment
from course_lib.claims.tinytown import HELD_OUT_SEED
from course_lib.config import TransformerConfig
from course_lib.encoder_decoder import EncoderOnly
from course_lib.gpt import DecoderOnly, evaluating
from course_lib.hub.checkpoints import from_hf_state_dict, tied_names
from course_lib.hub.names import their_name
from course_lib.pretrained import load_pretrained
from course_lib.tinytown import Tinytown, WordTokenizer
from course_lib.trace import trace
from course_lib.training import story_losses

SEEDS = (0, 1, 2)
STORIES = 24  # per seed, for a loss


def mean_loss(model: nn.Module, tokenizer: WordTokenizer, seed: int = 0, n_stories: int = STORIES) -> float:
    """Loss in nats per predicted token on held-out stories."""
    nats, tokens = story_losses(model, [tokenizer.encode(story) for story in _held_out(seed, n_stories)])
    return (nats.sum() / tokens.sum()).item()


@cache
def _held_out(seed: int, n_stories: int) -> list[str]:
    return Tinytown(HELD_OUT_SEED + seed).sample(n_stories)


# ---------------------------------------------------------------------------------------------- a model as others write
def gpt2_layout(model: DecoderOnly) -> tuple[dict[str, Tensor], dict]:
    """A decoder of ours as Hugging Face's GPT-2 would be written: (tensors by their names, configuration).

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


@experiment(
    "pretrained.shapes_that_fit",
    claim="If every tensor of a checkpoint has the right name and shape, it is loaded right.",
)
def shapes_that_fit() -> Finding:
    model, tokenizer = load_pretrained("tinytown")
    tensors, settings = gpt2_layout(model)
    turned = {name: tensor.T.contiguous() for name, tensor in tensors.items() if name.endswith("attn.c_proj.weight")}
    wrong = from_hf_state_dict("gpt2", tensors | turned, settings)  # square matrices: nothing complains
    right = [mean_loss(from_hf_state_dict("gpt2", tensors, settings), tokenizer, seed) for seed in SEEDS]
    losses = [mean_loss(wrong, tokenizer, seed) for seed in SEEDS]
    ratio = statistics.fmean(losses) / statistics.fmean(right)
    return Finding(
        f"one square matrix per block the wrong way round: loss {statistics.fmean(losses):.1f} instead of "
        f"{statistics.fmean(right):.1f} nats per token, and no error",
        tuple(losses),
        "refuted" if ratio > 1.1 else "confirmed",
        "A square matrix has the same shape when it is turned, so only the numbers that come out can tell: compare "
        "them with those of the model that you copied.",
    )


@experiment("pretrained.missing_tensor", claim="A tensor that was not loaded shows at once in the loss.")
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
        unseen.append(statistics.fmean(loss < 1.15 * reference for loss in losses))
    share = statistics.fmean(unseen)
    return Finding(
        f"of {len(matrices)} matrices, left one at a time as they were drawn, {10 * round(10 * share)} % raise the "
        "loss by less than 15 %",
        tuple(unseen),
        "refuted" if share > 0.5 else "depends" if share > 0 else "confirmed",
        "The other parts carry the text past some gaps, so a loader must count: every tensor used, every part filled.",
    )


# -------------------------------------------------------------------------------------------------- what a map can show
IT_STORY = "once there was a king called tom . the {animal} sat on the {thing} because it was {why} . yes , the"
PAIRS = (("cat", "mat", "tired", "soft"), ("dog", "sofa", "hungry", "warm"), ("owl", "box", "clever", "new"))


def rows_that_differ(model: DecoderOnly | EncoderOnly, one: Sequence[int], other: Sequence[int]) -> Tensor:
    """Two texts of equal length: the largest difference between their attention rows at each place, (T,), over all
    heads.

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


@experiment(
    "pretrained.it_in_a_decoder",
    claim="In a GPT, “it” looks at the cat when it was tired, and at the mat when it was soft.",
)
def it_in_a_decoder() -> Finding:
    model, tokenizer = load_pretrained("tinytown")
    at_it, at_end = [], []
    for animal, thing, tired, soft in PAIRS:
        texts = [IT_STORY.format(animal=animal, thing=thing, why=why) for why in (tired, soft)]
        one, other = (tokenizer.encode(text, end=False) for text in texts)
        rows = rows_that_differ(model, one, other)
        at_it.append(rows[one.index(tokenizer.id("it"))].item())
        at_end.append(rows[-1].item())
    return Finding(
        f"largest difference between the attention rows of “it”: {max(at_it):.1f}; at the last word: "
        f"{statistics.fmean(at_end):.1f}",
        tuple(at_it),
        "refuted" if max(at_it) == 0 else "confirmed",
        "“tired” and “soft” come after “it”, and in a causal model no row can depend on a later word: the model "
        "decides where it needs the answer, at the end.",
    )


def weight_on_first(weights: Tensor) -> list[tuple[float, Tensor]]:
    """Weight on the first token, in the first half of the positions and in the second: two pairs (even share, (L, H)).

    weights: (L, H, T, T). An even share is 1 over the number of positions that may be seen, averaged over the half. The
    very first position is left out: in a causal model it sees nothing else.
    """
    T, seen = weights.shape[-1], (weights > 0).flatten(0, 1).any(dim=0).sum(dim=-1)  # (T,): by some head
    halves = slice(1, T // 2), slice(T // 2, T)
    return [((1 / seen[half]).mean().item(), weights[:, :, half, 0].mean(dim=-1)) for half in halves]


def influence(model: DecoderOnly, ids: Tensor, replacements: Tensor) -> Tensor:
    """How far the prediction after ids (T,) moves if the word at each place is replaced: mean KL in nats, (T,).

    The first token (`<bos>`) and the last are left alone: NaN there. replacements: (R,) ids that stand in.
    """
    moved = torch.full((len(ids),), torch.nan)
    with evaluating(model):
        before = model(ids[None])[0, -1].log_softmax(dim=-1)  # (V,)
        for place in range(1, len(ids) - 1):
            changed = ids.repeat(len(replacements), 1)  # (R, T)
            changed[:, place] = replacements
            after = model(changed)[:, -1].log_softmax(dim=-1)  # (R, V)
            moved[place] = (before.exp() * (before - after)).sum(dim=-1).mean()
    return moved


def rank_correlation(one: Tensor, other: Tensor) -> float:
    """Spearman's: the correlation of the ranks, 1 for the same order, −1 for the reverse. Source: Spearman 1904."""
    ranks = torch.stack([values.argsort().argsort().double() for values in (one, other)])
    return torch.corrcoef(ranks)[0, 1].item()


def weights_and_influence(seed: int, n_stories: int = 4, n_replacements: int = 4) -> tuple[float, float]:
    """(rank correlation of weight and influence, share of stories whose heaviest word is also the most influential).

    Weight: from the last word, averaged over all heads of all layers. Each story is cut at a word drawn from its second
    half.
    """
    model, tokenizer = load_pretrained("tinytown")
    generator = torch.Generator().manual_seed(seed)
    orders, same = [], []
    for story in Tinytown(HELD_OUT_SEED + seed).sample(n_stories):
        ids = torch.tensor(tokenizer.encode(story))
        T = int(torch.randint(len(ids) // 2, len(ids) - 1, (1,), generator=generator))
        ids = ids[:T]
        others = torch.randint(3, len(tokenizer), (n_replacements,), generator=generator)
        moved = influence(model, ids, others)[1:-1]
        weight = torch.stack(model.attention_weights(ids[None]))[:, 0, :, -1, 1:-1].mean(dim=(0, 1))  # (T − 2,)
        orders.append(rank_correlation(weight, moved))
        same.append(bool(weight.argmax() == moved.argmax()))
    return statistics.fmean(orders), statistics.fmean(same)


@experiment("pretrained.weights_as_influence", claim="Attention weights show which words influence the output.")
def weights_as_influence() -> Finding:
    correlations, agreed = zip(*(weights_and_influence(seed) for seed in SEEDS))
    correlation, same = statistics.fmean(correlations), statistics.fmean(agreed)
    return Finding(
        "words replaced by random ones, so that texts break: rank correlation of weight and influence "
        f"{correlation:.1f}; the heaviest word is the most influential in {10 * round(10 * same)} % of the texts",
        correlations,
        "confirmed" if min(correlation, same) > 0.9 else "depends" if correlation > 0.2 else "refuted",
        "Weights and influence go together, loosely; part of the influence is that of a broken text. A weight says how "
        "much of a value is fetched at one step, not what it holds or what later layers do with it.",
    )


# ----------------------------------------------------------------------------------------------------- sentence vectors
def topic_vectors(model: DecoderOnly, tokenizer: WordTokenizer, stories: Sequence[str]) -> tuple[Tensor, list[str]]:
    """The lines of these stories as vectors of length 1, (N, d_model), and the topic of each.

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
    """Share of the lines whose nearest other line is about the same."""
    similarity = vectors @ vectors.T
    nearest = similarity.fill_diagonal_(-1).argmax(dim=-1)
    return statistics.fmean(topics[i] == topics[int(j)] for i, j in enumerate(nearest))


@experiment(
    "pretrained.grouped_sentences",
    claim="Sentence vectors that group sentences by topic show what training has taught.",
)
def grouped_sentences() -> Finding:
    model, tokenizer = load_pretrained("tinytown")
    trained, untrained = [], []
    for seed in SEEDS:
        stories = Tinytown(HELD_OUT_SEED + seed).sample(STORIES)
        torch.manual_seed(seed)
        fresh = DecoderOnly(TransformerConfig.from_dict(model.config.to_dict())).eval()
        trained.append(nearest_has_the_topic(*topic_vectors(model, tokenizer, stories)))
        untrained.append(nearest_has_the_topic(*topic_vectors(fresh, tokenizer, stories)))
    gain = statistics.fmean(trained) - statistics.fmean(untrained)
    return Finding(
        f"nearest sentence is about the same: {100 * statistics.fmean(trained):.0f} % trained, "
        f"{100 * statistics.fmean(untrained):.0f} % untrained",
        tuple(trained),
        "confirmed" if gain > 0.5 else "depends" if gain > 0.05 else "refuted",
        "Sentences about one thing share words, and a network of drawn weights keeps shared words near: without the "
        "untrained model beside it, the figure says little.",
    )


# --------------------------------------------------------------------------------------------- what training brought
def weight_on_referent(model: DecoderOnly) -> float:
    """Weight from the word that needs it to the word that “it” stands for, in the head that looks there most."""
    _, tokenizer = load_pretrained("tinytown")
    found = []
    for animal, thing, tired, soft in PAIRS:
        for why, referent in ((tired, animal), (soft, thing)):
            ids = tokenizer.encode(IT_STORY.format(animal=animal, thing=thing, why=why), end=False)
            with torch.no_grad():
                weights = torch.cat(model.attention_weights(torch.tensor([ids])))  # (layers, H, T, T)
            found.append(weights[:, :, -1, ids.index(tokenizer.id(referent))])
    return torch.stack(found).mean(dim=0).max().item()  # one head for all texts


@experiment("pretrained.referent_learned", claim="Training on the next word alone teaches what “it” means.")
def referent_learned() -> Finding:
    """The same architecture untrained is the control."""
    model, _ = load_pretrained("tinytown")
    trained, untrained = weight_on_referent(model), []
    for seed in SEEDS:
        torch.manual_seed(seed)
        untrained.append(weight_on_referent(DecoderOnly(model.config).eval()))
    taught = trained > 0.8 and max(untrained) < 0.1
    return Finding(
        measured=f"one head gives the right noun {trained:.1f} of its weight; untrained the best gives "
        f"{max(untrained):.2f}",
        values=(trained, *untrained),
        verdict="confirmed" if taught else "depends" if trained > 2 * max(untrained) else "refuted",
        because="Looking at the right noun makes the next word cheaper to predict; no rule names it. The head does so "
        "where the answer is due, not at “it”.",
    )
