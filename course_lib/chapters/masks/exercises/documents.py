import torch

from course_lib.grading.exercise import Case, generator, stage


def document_mask(document_ids):
    """Return a boolean (B, 1, T, T): a key is not later, and in the same document."""
    same = document_ids[:, :, None] == document_ids[:, None, :]  # (B, T, T)
    causal = torch.ones_like(same).tril()
    return (same & causal)[:, None]  # for every head


@stage
def one_document(seed):
    "One document: the mask is the causal triangle."
    return [Case(torch.tensor([[5]])), Case(torch.tensor([[1, 1, 1]]))]


@stage
def two_documents(seed):
    "Two or three documents in one row."
    return [Case(torch.tensor([[1, 2]])), Case(torch.tensor([[1, 1, 2, 2, 2]])), Case(torch.tensor([[2, 1, 1, 0]]))]


@stage
def several_rows(seed):
    "A batch: each row has its own documents."
    return [
        Case(torch.tensor([[1, 1, 1, 2], [1, 2, 2, 2]])),
        Case(torch.tensor([[3, 4, 4], [6, 6, 6], [2, 2, 8]])),
    ]


@stage
def continued(seed):
    "A document that continues after another one, as in the table of the statement."
    return [Case(torch.tensor([[7, 7, 3, 7]])), Case(torch.tensor([[1, 4, 1, 4, 4], [9, 2, 2, 9, 2]]))]


@stage
def with_padding(seed):
    "Padding, with the id −1, is like another document; 0 is an id like any other."
    return [
        Case(torch.tensor([[1, 1, -1, -1]])),
        Case(torch.tensor([[0, 0, 3, 3, -1], [0, 1, -1, -1, -1], [-1, -1, -1, -1, -1]])),
    ]


@stage
def any_ids(seed):
    "Random ids, also large ones and those of another dtype."
    rng = generator(seed)
    large = 2**40 + torch.randint(0, 3, (2, 7), generator=rng)
    return [
        Case(torch.randint(-1, 3, (5, 6), generator=rng)),
        Case(torch.randint(-1, 2, (3, 9), generator=rng, dtype=torch.int32)),
        Case(torch.randint(0, 2, (4, 1), generator=rng)),
        Case(large),
    ]
