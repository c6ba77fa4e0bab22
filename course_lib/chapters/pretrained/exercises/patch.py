import torch

from course_lib.chapters.pretrained.claims import IT_STORY
from course_lib.chapters.pretrained.fixtures import as_rows as probe
from course_lib.chapters.pretrained.fixtures import attentive_decoder, tinytown
from course_lib.gpt import evaluating
from course_lib.grading.exercise import Case, Given, generator, stage
from course_lib.tinytown import CLASSES, WordTokenizer


def patching_effects(model, clean, corrupted, control, position, answer, other):
    """Return {"effect", "control"}: for each block, the fraction of the lead that comes
    back if one position of the residual stream is from the other run, (L,) each."""

    def lead(ids):
        """Return how far `answer` is ahead of `other` after the last token."""
        last = model(ids)[:, -1]  # (B, V)
        ahead = last.gather(1, answer[:, None]) - last.gather(1, other[:, None])  # (B, 1)
        return ahead.mean()

    def stream_after(block, ids):
        """Return the residual stream after a block, (B, T, d_model)."""
        seen = []
        handle = block.register_forward_hook(lambda _, inputs, x: seen.append(x))
        model(ids)
        handle.remove()
        return seen[0]

    def patched_lead(block, source):
        """Return the lead of the corrupted run with one position from another run."""
        stream = stream_after(block, source)

        def replace(_, inputs, x):
            x = x.clone()
            x[:, position] = stream[:, position]
            return x

        handle = block.register_forward_hook(replace)
        found = lead(corrupted)
        handle.remove()
        return found

    def fractions(source):
        changes = [patched_lead(block, source) - before for block in model.blocks]
        return torch.stack(changes) / whole  # (L,)

    with evaluating(model):
        before = lead(corrupted)
        whole = lead(clean) - before
        return {"effect": fractions(clean), "control": fractions(control)}


V = 19


def three_texts(rng, B, T, differ):
    """Return clean, corrupted and control, (B, T) each, with other words at the positions that differ."""
    ids, shift = torch.randint(V, (B, T), generator=rng), torch.zeros(B, T, dtype=torch.long)
    shift[:, differ] = torch.randint(1, V // 2, (B, len(differ)), generator=rng)
    return [(ids + n * shift) % V for n in range(3)]


def random_case(rng, B, T, differ, position, **config):
    """Return a case with a small random model. Its answers are the words whose logits differ most between the runs.

    A model is chosen in which the leads of the runs differ, and in which the first block moves something to the end.
    """
    config = {"vocab_size": V, "d_model": 8, "n_heads": 2, "n_layers": 2, "max_seq_len": 12} | config
    while True:
        seed = int(torch.randint(2**31, (), generator=rng))
        model = Given(attentive_decoder, config, seed, says=f"a random decoder of {config['n_layers']} blocks")
        clean, corrupted, control = three_texts(rng, B, T, differ)
        built = model.make(*model.data)
        with evaluating(built):
            change = (built(clean) - built(corrupted))[:, -1]  # (B, V)
        if (change.amax(dim=-1) - change.amin(dim=-1)).min() < 0.2:
            continue
        case = Case(model, clean, corrupted, control, position, change.argmax(dim=-1), change.argmin(dim=-1))
        if patching_effects(built, *case.args[1:])["effect"][0].abs() > 0.1:
            return case


@stage
def where_they_differ(seed):
    "Two blocks and one text: the patched position is the only one at which the texts differ."
    rng = generator(seed)
    return [random_case(rng, 1, 3, [1], 1), random_case(rng, 1, 5, [2], 2)]


@stage
def other_positions(seed):
    "Another position is patched: the last one, or one in between."
    rng = generator(seed)
    return [random_case(rng, 1, 4, [1, 2], 3), random_case(rng, 1, 6, [1, 2], 4, n_layers=3)]


@stage
def several_texts(seed):
    "Several texts at once: the lead is their mean."
    rng = generator(seed)
    return [random_case(rng, 3, 6, [1, 3], 1, n_layers=3), random_case(rng, 5, 8, [1, 2, 4], 7, n_layers=4)]


@stage
def newer_blocks(seed):
    "A decoder with RoPE, RMSNorm and SwiGLU."
    newer = {"positions": "rope", "norm": "rms", "activation": "swiglu", "n_layers": 3}
    return [random_case(generator(seed), 2, 7, [0, 2], 4, **newer)]


@stage
def training_mode(seed):
    "A model that arrives in training mode with dropout on: measure with dropout off."
    return [random_case(generator(seed), 2, 6, [2, 3], 3, dropout=0.3, n_layers=3)]


@stage
def it_in_tinytown(seed):
    "The trained Tinytown model and the word “it”, at the last token."
    rng, tokenizer = generator(seed), WordTokenizer()

    def some(kind, n):
        words = list(CLASSES[kind])
        return [words[i] for i in torch.randperm(len(words), generator=rng)[:n]]

    stories, nouns = [], []
    for animal, thing in zip(some("animal", 2), some("thing", 2)):
        whys = some("animal_adjective", 1) + some("thing_adjective", 2)
        three = [IT_STORY.format(animal=animal, thing=thing, why=why) for why in whys]
        stories.append([tokenizer.encode(story, end=False) for story in three])
        nouns.append([tokenizer.id(animal), tokenizer.id(thing)])
    clean, corrupted, control = torch.tensor(stories).unbind(dim=1)  # (B, T) each
    answer, other = torch.tensor(nouns).unbind(dim=1)  # (B,) each
    model = Given(tinytown, says="the trained Tinytown model")
    return [Case(model, clean, corrupted, control, clean.shape[1] - 1, answer, other)]
