import torch

from course_lib.grading.exercise import Case, generator, stage

TEMPLATE, USER, ASSISTANT = 0, 1, 2
PAD, BOS, EOS, SAYS_USER, SAYS_ASSISTANT = 0, 1, 2, 8, 9


def answer_targets(ids, roles):
    """Return the next id where the assistant wrote it, and −100 elsewhere: (B, T)."""
    targets = torch.full_like(ids, -100)  # (B, T)
    spoken = roles[:, 1:] == 2  # (B, T − 1): did the assistant write the next token?
    targets[:, :-1] = ids[:, 1:].masked_fill(~spoken, -100)
    return targets


def turn(rng, question, answer):
    """Return (id, role) of a question and its answer, of so many words each."""
    words = (10 + torch.randint(90, (question + answer,), generator=rng)).tolist()
    asked = [(SAYS_USER, TEMPLATE), *[(word, USER) for word in words[:question]]]
    told = [(SAYS_ASSISTANT, TEMPLATE), *[(word, ASSISTANT) for word in words[question:]], (EOS, ASSISTANT)]
    return asked + told


def dialogue(rng, *turns):
    """Return (id, role) of a dialogue with turns (words of the question, words of the answer)."""
    return [(BOS, TEMPLATE), *[token for each in turns for token in turn(rng, *each)]]


def batch(*rows):
    """Return ids and roles (B, T) of rows, which <pad> fills at the end."""
    T = max(map(len, rows))
    padded = torch.tensor([row + [(PAD, TEMPLATE)] * (T - len(row)) for row in rows])  # (B, T, 2)
    return Case(*padded.unbind(-1))


@stage
def one_answer(seed):
    "One question and one answer, as in the table of the statement."
    return [
        Case(torch.tensor([[1, 8, 5, 9, 6, 4, 2, 0]]), torch.tensor([[0, 0, 1, 0, 2, 2, 2, 0]])),
        batch(dialogue(generator(seed), (3, 2))),
    ]


@stage
def padded_batch(seed):
    "Dialogues of different lengths: padding is never a target."
    rng = generator(seed)
    return [
        batch(dialogue(rng, (4, 3)), dialogue(rng, (1, 1)), dialogue(rng, (2, 5))),
        batch(dialogue(rng, (2, 4)), dialogue(rng, (6, 1))),
    ]


@stage
def several_turns(seed):
    "Several questions and answers in a row: every answer counts, the questions between them do not."
    rng = generator(seed)
    return [
        batch(dialogue(rng, (2, 2), (3, 1))),
        batch(dialogue(rng, (1, 3), (2, 2), (1, 4)), dialogue(rng, (5, 2)), dialogue(rng, (2, 1), (1, 2))),
    ]


@stage
def cut_windows(seed):
    "Windows cut out of longer dialogues: a row may begin or end within an answer, or have none at all."
    rng = generator(seed)
    begins, ends = dialogue(rng, (2, 4), (2, 3))[5:15], dialogue(rng, (2, 3), (1, 5))[:15]
    within, none = [(word, ASSISTANT) for word in range(20, 26)], [(word, USER) for word in range(30, 36)]
    return [batch(begins[:10], ends[-10:]), batch(within, none, within[::-1]), batch(within[:1], none[:1])]


@stage
def any_roles(seed):
    "Random tables: each token decides for itself, also a token with the id 0."
    rng = generator(seed)
    shapes = (3, 7), (5, 5), (1, 12)
    return [Case(*(torch.randint(most, shape, generator=rng) for most in (30, 3))) for shape in shapes]
