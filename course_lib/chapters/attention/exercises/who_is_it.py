import math

import torch

from course_lib.grading.exercise import Case, generator, stage


def most_attended(tokens, embeddings, query_token):
    """Return the token that query_token attends to most, and its weights (S,)."""
    query = embeddings[tokens.index(query_token)]  # (D,)
    scores = embeddings @ query / math.sqrt(len(query))  # (S,)
    weights = scores.softmax(dim=0)
    return tokens[int(weights.argmax())], weights


IT_TOKENS = ["cat", "sat", "mat", "it", "tired"]


IT_EMBEDDINGS = torch.tensor(
    [[1.0, 0.1, 0.0, 0.9], [0.0, 0.8, 0.2, 0.1], [0.1, 0.2, 0.9, 0.0], [0.9, 0.1, 0.0, 0.8], [0.0, 0.1, 0.0, 0.9]]
)


@stage
def it_looks(seed):
    "The five tokens of the chapter; the query is 'it'."
    return [Case(list(IT_TOKENS), IT_EMBEDDINGS.clone(), "it")]


@stage
def others_look(seed):
    "The same five tokens; the query is another of them."
    return [Case(list(IT_TOKENS), IT_EMBEDDINGS.clone(), token) for token in ("sat", "cat", "mat")]


@stage
def drawn_tokens(seed):
    "Other tokens, with random embeddings."
    rng = generator(seed)
    tokens = ["a", "dog", "bites", "one", "old", "man"]
    return [
        Case(tokens[:3], torch.randn(3, 7, generator=rng), "dog"),
        Case(tokens, torch.randn(6, 5, generator=rng), "man"),
    ]
