"""Chapter 1, embeddings: seven exercises.

Shapes: weight (V, D), ids (B, T). References in plain torch; nothing here uses the library's own module.
"""

import math
from functools import partial

import torch
import torch.nn.functional as F

from ..exercise import Case, Exercise, Misconception, Option, generator
from ..given import rows_and_gradient

INF = float("inf")

# --- embeddings.merge_pair --------------------------------------------------------------------------------------------


def merge_pair(tokens, pair):
    return by_steps(tokens, pair)


def first_only(tokens, pair):
    for i in range(len(tokens) - 1):
        if (tokens[i], tokens[i + 1]) == tuple(pair):
            return [*tokens[:i], tokens[i] + tokens[i + 1], *tokens[i + 2 :]]
    return list(tokens)


def by_steps(tokens, pair, *, matches=None, skip=2, tail=True):
    """A loop over places, with the parts in which learners slip left open."""
    matches = matches or (lambda left, right: (left, right) == tuple(pair))
    merged, i = [], 0
    while i < len(tokens):
        if i + 1 < len(tokens) and matches(tokens[i], tokens[i + 1]):
            merged.append(tokens[i] + tokens[i + 1])
            i += skip
        elif i + 1 < len(tokens) or tail:
            merged.append(tokens[i])
            i += 1
        else:
            break
    return merged


def whatever_the_order(tokens, pair):
    return by_steps(tokens, pair, matches=lambda left, right: {left, right} == set(pair))


def whatever_the_borders(tokens, pair):
    return by_steps(tokens, pair, matches=lambda left, right: left + right == pair[0] + pair[1])


def replaced_in_the_text(tokens, pair):
    return " ".join(tokens).replace(" ".join(pair), "".join(pair)).split()


def from_the_right(tokens, pair):
    turned = merge_pair([token[::-1] for token in tokens[::-1]], [part[::-1] for part in tuple(pair)[::-1]])
    return [token[::-1] for token in turned[::-1]]


def joined_again(tokens, pair):
    return "".join(merge_pair(tokens, pair))


def one_place(seed):
    "One place where the pair stands."
    return [Case(["c", "a", "t"], ("a", "t"))]


def every_place(seed):
    "Every place where the pair stands, and the rest as it was."
    return [Case(list("thecatsat"), ("a", "t")), Case([*"mat", *"ten", *"tea"], ("t", "e"))]


def order_counts(seed):
    "The pair in the other order is another pair."
    return [Case(list("tata"), ("a", "t")), Case(list("abba"), ("b", "a"))]


def overlapping(seed):
    "From left to right, and no token is used twice: three equal letters hold one pair and a rest."
    return [Case(list("aaa"), ("a", "a")), Case(list("baaaab"), ("a", "a"))]


def longer_tokens(seed):
    "Tokens that earlier merges made: ('ab', 'c') spells what ('a', 'bc') spells, and is another pair."
    return [
        Case(["ab", "c", "a", "bc"], ("a", "bc")),
        Case(["th", "e", "th", "e", "n", "t", "he"], ("th", "e")),
    ]


def ends_and_beginnings(seed):
    "A token that ends like the left one of the pair, or begins like the right one, is another token."
    return [Case(["ca", "t"], ("a", "t")), Case(["a", "te"], ("a", "t")), Case(["ca", "a", "t", "te"], ("a", "t"))]


def nothing_to_merge(seed):
    "Nothing to merge: the same tokens, be there one or none."
    return [Case(["a"], ("a", "a")), Case([], ("a", "b")), Case(list("cab"), ("b", "c"))]


def drawn_letters(seed):
    "Drawn letters."
    letters = torch.randint(0, 3, (24,), generator=generator(seed)).tolist()
    tokens = ["abc"[i] for i in letters]
    return [Case(tokens, ("a", "b")), Case(tokens, ("c", "c"))]


MERGE_PAIR = Exercise(
    id="embeddings.merge_pair",
    chapter=1,
    title="One merge of byte-pair encoding",
    kind="code",
    points=3,
    difficulty=3,
    minutes=15,
    signature="merge_pair(tokens, pair)",
    why="Repeat this step fifty thousand times and you have the vocabulary of GPT-2.",
    reference=merge_pair,
    stages=[
        one_place,
        every_place,
        order_counts,
        overlapping,
        longer_tokens,
        ends_and_beginnings,
        nothing_to_merge,
        drawn_letters,
    ],
    hints=[
        "Walk from left to right with a place i that you move yourself: a `while` loop. What do you look at in a step?",
        "If tokens i and i + 1 are the pair, one token goes out and two have come in. By how much must i move on?",
        "The last token has no neighbour to its right. Does it still arrive in your result?",
    ],
    misconceptions=[
        Misconception(
            "only the first place",
            first_only,
            "You merge the first place where the pair stands and stop. One merge of byte-pair encoding joins the pair "
            "wherever it stands.",
        ),
        Misconception(
            "a token used twice",
            lambda tokens, pair: by_steps(tokens, pair, skip=1),
            "After a merge you move on by one place, so that the right half is looked at again and appears twice. Both "
            "tokens have been used: move on by two.",
        ),
        Misconception(
            "the last token lost",
            lambda tokens, pair: by_steps(tokens, pair, tail=False),
            "The last token has no right neighbour, and you drop it when it was not merged. Nothing may get lost: "
            "joined together, the tokens must still spell the text.",
        ),
        Misconception(
            "order ignored",
            whatever_the_order,
            "You merge the two tokens in either order. (t, a) is another pair than (a, t), with a count of its own.",
        ),
        Misconception(
            "borders ignored",
            whatever_the_borders,
            "You compare what the two tokens spell together. The pair is two given tokens: ('ab', 'c') and ('a', 'bc') "
            "spell the same and are different pairs.",
        ),
        Misconception(
            "replaced in the text",
            replaced_in_the_text,
            "You merge where the end of one token and the beginning of the next spell the pair, as replacing in a text "
            "does: 'ca t' contains 'a t'. The tokens there are ca and t, another pair: compare whole tokens.",
        ),
        Misconception(
            "from the right",
            from_the_right,
            "You begin at the right end. Where pairs overlap it makes a difference: by convention the leftmost pair is "
            "joined first.",
        ),
        Misconception(
            "a text instead of tokens",
            joined_again,
            "You return one text. Return the list of tokens: where the borders are is the whole point.",
        ),
        Misconception(
            "nothing merged",
            lambda tokens, pair: list(tokens),
            "Your tokens come out as they went in. If you compare a list with a tuple, they are never equal: compare "
            "(tokens[i], tokens[i + 1]) with pair.",
        ),
    ],
)

# --- embeddings.lookup ------------------------------------------------------------------------------------------------


def embedding_lookup(weight, ids):
    return weight[ids.long()]  # (B, T, D)


def table(rng, V, D, dtype=torch.float32):
    return torch.randn(V, D, generator=rng, dtype=dtype)


def drawn_ids(rng, B, T, V):
    """Drawn ids; the first is 0 and the last V − 1, so that both ends of the table are asked for."""
    ids = torch.randint(0, V, (B, T), generator=rng)
    ids[0, 0], ids[-1, -1] = 0, V - 1
    return ids


def one_id(seed):
    "One id: one row, still with its batch and its time axis."
    return [Case(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), torch.tensor([[1]]))]


def order_and_repeats(seed):
    "One sequence: the rows come in the order of the ids, and an id that is there twice gives its row twice."
    weight = torch.arange(12.0).view(4, 3)
    return [Case(weight, torch.tensor([[2, 0, 2]])), Case(weight, torch.tensor([[3, 1, 0, 0, 2]]))]


def first_row(seed):
    "Id 0 is a token like any other, and the first row belongs to it."
    weight = table(generator(seed), 4, 3)
    return [Case(weight, torch.tensor([[0, 1, 0]]))]


def several_sequences(seed):
    "A batch: every sequence keeps its own rows."
    rng = generator(seed)
    return [
        Case(table(rng, 5, 3), drawn_ids(rng, 2, 4, 5)),
        Case(table(rng, 7, 2), drawn_ids(rng, 3, 2, 7)),
        Case(table(rng, 9, 1), drawn_ids(rng, 1, 6, 9)),
        Case(table(rng, 6, 6), drawn_ids(rng, 6, 6, 6)),
    ]


def double_table(seed):
    "float64 in, float64 out."
    rng = generator(seed)
    return [Case(table(rng, 6, 5, torch.float64), drawn_ids(rng, 2, 3, 6))]


def learning_table(seed):
    "A table that learns: the gradient must find its way back to the rows (second result: the gradient of the table)."
    rng = generator(seed)
    return [Case(table(rng, 5, 2).requires_grad_(), drawn_ids(rng, 2, 2, 5))]


LOOKUP = Exercise(
    id="embeddings.lookup",
    chapter=1,
    title="A look-up, without nn.Embedding",
    kind="code",
    points=2,
    difficulty=1,
    minutes=5,
    signature="embedding_lookup(weight, ids)",
    why="It is the first thing that every language model does with your text.",
    reference=embedding_lookup,
    stages=[one_id, order_and_repeats, first_row, several_sequences, double_table, learning_table],
    probe=rows_and_gradient,
    returns=["rows", "gradient"],
    forbidden=["embedding"],
    hints=[
        "An id is the number of a row. How do you ask a tensor for its row 2? And for its rows 2, 0 and 2?",
        "A tensor of ids may stand in the square brackets. The result has the shape of the ids, and one axis more.",
        "Stay with tensors from the table to the result: values that pass through Python numbers forget where they "
        "came from, and no gradient finds back.",
    ],
    misconceptions=[
        Misconception(
            "columns for rows",
            lambda weight, ids: weight.T[ids.clamp(max=weight.shape[1] - 1)],
            "You pick columns. A column holds one feature of all tokens; a token's vector is a row.",
            also=[lambda weight, ids: weight[:, ids], lambda weight, ids: weight.T[ids]],
        ),
        Misconception(
            "batch flattened",
            lambda weight, ids: weight[ids.flatten()],
            "All rows are there, in one long line: (B·T, D). Keep the axes of the ids and add one: (B, T, D).",
        ),
        Misconception(
            "first sequence only",
            lambda weight, ids: weight[ids[0]],
            "You look up the first sequence of the batch. There are B of them.",
            also=[lambda weight, ids: weight[ids[:1]]],
        ),
        Misconception(
            "counting from one",
            lambda weight, ids: weight[ids - 1],
            "You take the row above: ids count from 0, so id 1 is the second row. (Row −1 exists in Python, which is "
            "why nothing complained.)",
        ),
        Misconception(
            "each token once",
            lambda weight, ids: weight[ids.unique()],
            "You look up every different id once, sorted. A text says words twice and in its own order: one row for "
            "each place.",
        ),
        Misconception(
            "rows added up",
            lambda weight, ids: weight[ids].sum(1),
            "You add the rows of a sequence into one vector. The result keeps one vector for each place.",
            also=[lambda weight, ids: weight[ids].mean(1)],
        ),
        Misconception(
            "place instead of token",
            lambda weight, ids: (
                weight[torch.arange(ids.shape[1]) % len(weight)].expand(*ids.shape, weight.shape[1]).clone()
            ),
            "Your rows count 0, 1, 2, … along the sequence: you look up places. The id says which row it is.",
        ),
        Misconception(
            "features before places",
            lambda weight, ids: weight[ids].transpose(1, 2),
            "Your axes are (B, D, T). The features of a token stand together at the end: (B, T, D).",
            also=[lambda weight, ids: weight[ids].transpose(0, 1)],
        ),
        Misconception(
            "scaled",
            lambda weight, ids: weight[ids] * math.sqrt(weight.shape[1]),
            "These are the rows times √D. Some models scale after the look-up; the look-up itself changes nothing.",
        ),
        Misconception(
            "id 0 taken for padding",
            lambda weight, ids: weight[ids] * (ids != 0)[..., None],
            "You give zeros for id 0. A token is only padding where somebody has said so; here row 0 is a row like "
            "any other.",
        ),
        Misconception(
            "always float32",
            lambda weight, ids: weight.float()[ids],
            "You turn the table into float32 and lose half the digits of a float64 table. Leave its dtype as it is.",
        ),
        Misconception(
            "gradient lost",
            lambda weight, ids: weight.detach()[ids],
            "The rows are right, and they have forgotten their table: no gradient comes back, so it would never learn. "
            "`detach`, `.data`, `.tolist()` and `torch.tensor(…)` all cut that thread.",
            also=[lambda weight, ids: torch.tensor(weight.tolist(), dtype=weight.dtype)[ids]],
        ),
    ],
)

# --- embeddings.one_hot -----------------------------------------------------------------------------------------------


def one_hot_lookup(weight, ids):
    return one_hot_rows(weight, ids) @ weight  # (B, T, V) @ (V, D)


def one_hot_rows(weight, ids):
    return (ids[..., None] == torch.arange(len(weight))).to(weight.dtype)  # (B, T, V)


def by_product(seed):
    "One id in a table of three rows: [0, 1, 0] times the table."
    return [Case(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), torch.tensor([[1]]))]


def sequence_by_product(seed):
    "One sequence, in which an id comes twice and the largest id is not the last of the table."
    return [Case(torch.arange(12.0).view(4, 3), torch.tensor([[2, 0, 2]]))]


def every_row_takes_part(seed):
    "A row of infinities that nobody asks for. A product meets it as 0 · ∞, which is NaN; a look-up never sees it."
    weight = torch.arange(1.0, 9.0).view(4, 2)
    weight[3] = INF
    return [Case(weight, torch.tensor([[1, 0]]))]


ONE_HOT = Exercise(
    id="embeddings.one_hot",
    chapter=1,
    title="The same look-up as a matrix product",
    kind="code",
    points=2,
    difficulty=2,
    minutes=10,
    signature="one_hot_lookup(weight, ids)",
    why="It shows that an embedding is a linear layer, and why nobody computes it as one.",
    reference=one_hot_lookup,
    stages=[by_product, sequence_by_product, several_sequences, every_row_takes_part, double_table],
    hints=[
        "What must a row of V numbers hold so that its product with the (V, D) table is row 2 of the table?",
        "How long is each one-hot row: as long as the largest id of this batch demands, or as long as the table has "
        "rows? `F.one_hot` takes that length as its second argument.",
        "A product needs one dtype on both sides, and one-hot rows are born as whole numbers. Which dtype has the "
        "table?",
    ],
    misconceptions=[
        Misconception(
            "not every row takes part",
            lambda weight, ids: weight[ids],
            "The rows are right, and a row of infinities that nobody asks for leaves no trace: 0 · ∞ would be NaN. "
            "Here every row of the table takes part. Picking rows leaves the others out, and so does a product with "
            "rows that are too short or sparse, or a table that was cut or cleaned first. Build one-hot rows as long "
            "as the table, and multiply them with all of it.",
            also=[lambda weight, ids: weight.index_select(0, ids.flatten()).view(*ids.shape, -1)],
        ),
        Misconception(
            "as wide as the largest id",
            lambda weight, ids: F.one_hot(ids).to(weight.dtype) @ weight,
            "Without a length F.one_hot makes rows as long as the largest id of this batch needs. The table has V "
            "rows, whichever ids happen to be there: say how many classes there are.",
            also=[lambda weight, ids: torch.eye(int(ids.max()) + 1, dtype=weight.dtype)[ids] @ weight],
        ),
        Misconception(
            "whole numbers times floats",
            lambda weight, ids: F.one_hot(ids, len(weight)) @ weight,
            "One-hot rows are whole numbers (int64), the table is not, and a product needs one dtype on both sides. "
            "Turn the one-hot rows into the table's dtype.",
            also=[lambda weight, ids: F.one_hot(ids) @ weight],
        ),
        Misconception(
            "float32 whatever the table",
            lambda weight, ids: F.one_hot(ids, len(weight)).float() @ weight,
            "`.float()` makes float32. That fits most tables and fails with a float64 one: ask the table with "
            "`weight.dtype`.",
        ),
        Misconception(
            "always float32",
            lambda weight, ids: one_hot_rows(weight, ids).float() @ weight.float(),
            "You turn the table into float32 and lose half the digits of a float64 table. Bring the one-hot rows to "
            "the table's dtype, not the other way round.",
        ),
        Misconception(
            "one row per sequence",
            lambda weight, ids: one_hot_rows(weight, ids).sum(1) @ weight,
            "You add the one-hot rows of a sequence before the product: a bag of words. Each place needs its own row, "
            "or the order is gone.",
        ),
        Misconception(
            "ones in the wrong place",
            lambda weight, ids: one_hot_rows(weight, ids - 1) @ weight,
            "Each 1 stands one place too far to the left. Ids count from 0, and so do the places of a row.",
            also=[lambda weight, ids: one_hot_rows(weight, (ids - 1) % len(weight)) @ weight],
        ),
        Misconception(
            "product the other way round",
            lambda weight, ids: weight.T @ one_hot_rows(weight, ids).transpose(-2, -1),
            "Your axes are (B, D, T): the table stands on the left. One-hot rows (B, T, V) times the table (V, D) "
            "gives (B, T, D).",
        ),
        Misconception(
            "batch flattened",
            lambda weight, ids: one_hot_rows(weight, ids.flatten()) @ weight,
            "All rows are there, in one long line: (B·T, D). Keep the axes of the ids and add one: (B, T, D).",
        ),
        Misconception(
            "one-hot rows returned",
            one_hot_rows,
            "These are the one-hot rows. Now multiply them with the table.",
        ),
    ],
)

# --- embeddings.nearest -----------------------------------------------------------------------------------------------


def cosines(weight, vector):
    """(V,) cosine of every row with the vector; 0 for a row of zeros."""
    return directions(weight) @ F.normalize(vector, dim=0)


def directions(weight):
    return weight / weight.norm(dim=1, keepdim=True).clamp_min(1e-12)


def dots(weight, vector):
    return weight @ vector


def closeness(weight, vector):
    return -(weight - vector).norm(dim=1)


def cosines_with_nan(weight, vector):
    return (weight @ vector) / (weight.norm(dim=1) * vector.norm())


def centred_cosines(weight, vector):
    return cosines(weight - weight.mean(1, keepdim=True), vector - vector.mean())


def column_cosines(weight, vector, *, row):
    columns = F.normalize(weight, dim=0)
    return columns @ columns[row]


def best(scores, left_out, k, *, forbidden_score=-INF):
    scores = scores.clone()
    scores[list(left_out)] = forbidden_score
    return scores.argsort(descending=True)[:k]


def nearest_tokens(weight, index, k):
    return best(cosines(weight, weight[index]), [index], k)


def wrong_nearest(weight, index, k, *, score=cosines, left_out=True, forbidden_score=-INF):
    out = [index] if left_out else []
    return best(score(weight, weight[index]), out, k, forbidden_score=forbidden_score)


def too_few_nearest(weight, index, k):
    with_itself = wrong_nearest(weight, index, k, left_out=False)
    return with_itself[with_itself != index]


def first_dropped(weight, index, k):
    return cosines(weight, weight[index]).argsort(descending=True, stable=True)[1 : k + 1]


def equals_left_out(weight, index, k):
    """Leaves out whatever has cosine 1 with the token."""
    scores = cosines(weight, weight[index])
    return best(scores, (scores > 1 - 1e-6).nonzero().flatten().tolist(), k)


def turned(order):
    return torch.as_tensor(order).flip(0)


def four_arrows(seed):
    "Four arrows on paper: one points almost the same way, one is long, one has its tip close by."
    return [Case(torch.tensor([[1.0, 0.0], [5.0, 4.0], [0.6, 0.7], [0.3, 0.02]]), 0, 1)]


def opposite_arrows(seed):
    "An arrow that points the opposite way is as far as can be, and any number of neighbours may be asked for."
    weight = torch.tensor([[1.0, 0.2], [-2.0, -0.3], [0.4, 0.5], [0.1, -0.9]])
    return [Case(weight, 0, 2), Case(weight, 2, 3)]


def drawn_tables(seed):
    "Drawn tables of several sizes: indices, best first."
    rng = generator(seed)
    return [Case(table(rng, V, D) * (0.2 + torch.rand(V, 1, generator=rng)), V // 2, k) for V, D, k in SIZES]


SIZES = [(8, 3, 2), (7, 12, 6), (30, 5, 4), (40, 16, 39)]


def row_of_zeros(seed):
    "A row of zeros, as padding often has: it points nowhere, and its cosine with everything counts as 0."
    rng = generator(seed)
    weight = table(rng, 6, 3)
    weight[0] = 0
    weight[4] = weight[2] + 0.1 * table(rng, 1, 3)[0]
    return [Case(weight, 2, 1), Case(weight, 2, 5)]


def parallel_rows(seed):
    "A row that is twice the token's own, before it or after it: it has cosine 1, too, and is the nearest neighbour."
    weight = torch.tensor([[0.0, 4.0], [3.0, 1.0], [0.0, 2.0], [1.0, 1.0]])
    return [Case(weight, 2, 1), Case(weight, 0, 1), Case(weight, 2, 3), Case(weight, 0, 3)]


def exact_opposites(seed):
    "A row that points exactly the opposite way has cosine −1 and comes last: the token itself does not come at all."
    weight = torch.tensor([[0.0, -1.0], [3.0, 1.0], [0.0, 2.0], [1.0, 1.0]])
    return [Case(weight, 2, 3), Case(weight, 0, 3)]


def token_of_zeros(seed):
    "The token itself is a row of zeros. Its cosine with the other row is 0, and that row is still its neighbour."
    weight = torch.tensor([[0.0, 0.0], [3.0, 1.0]])
    return [Case(weight, 0, 1), Case(weight.flip(0), 1, 1)]


def nearest_in_double(seed):
    "A float64 table."
    rng = generator(seed)
    return [Case(table(rng, 12, 7, torch.float64), 11, 5)]


def order_of(kind, **open_parts):
    """The wrong order `kind`, by a learner who leaves the token out and by one who does not."""
    return [
        partial(wrong_nearest, score=kind, **open_parts),
        partial(wrong_nearest, score=kind, left_out=False, **open_parts),
    ]


def neighbour_slips():
    dot, *dot_too = order_of(dots)
    distance, *distance_too = order_of(closeness)
    size, *size_too = order_of(lambda weight, vector: cosines(weight, vector).abs())
    last, *last_too = order_of(lambda weight, vector: -cosines(weight, vector))
    nan, *nan_too = order_of(cosines_with_nan)
    centred, *centred_too = order_of(centred_cosines)
    return [
        Misconception(
            "itself included",
            partial(wrong_nearest, left_out=False),
            "Your first neighbour is the token itself: nothing is nearer than its own vector. Leave `index` out before "
            "you choose the k best.",
        ),
        Misconception(
            "itself left out too late",
            too_few_nearest,
            "You choose k tokens and then take the token itself away, so that k − 1 are left. Leave it out before you "
            "choose.",
        ),
        Misconception(
            "the first left out, whoever it is",
            first_dropped,
            "You sort all tokens and drop the first, as if it were always the token itself. A row parallel to it has "
            "the same cosine and may stand before it. Leave out the number `index`, not the place 0.",
            also=[lambda weight, index, k: cosines(weight, weight[index]).topk(k + 1).indices[1:]],
        ),
        Misconception(
            "cosine 1 left out",
            equals_left_out,
            "You leave out every token with a cosine of 1. A row parallel to the token has it, too, and is its nearest "
            "neighbour: leave out `index` alone.",
        ),
        Misconception(
            "itself set to −1",
            lambda weight, index, k: best(
                cosines(weight, weight[index]).index_fill(0, torch.tensor(index), -1.0), [], k
            ),
            "You give the token itself a cosine of −1, which a row that points exactly the opposite way has, too. "
            "Only a score of −inf is below everything.",
        ),
        Misconception(
            "itself set to zero",
            partial(wrong_nearest, forbidden_score=0.0),
            "You give the token itself a cosine of 0, and neighbours with a negative cosine come after it. "
            "Only a score of −inf is below everything.",
        ),
        Misconception(
            "dot product",
            dot,
            "You rank by dot product, so long vectors win, wherever they point. The cosine divides by both lengths.",
            also=dot_too,
        ),
        Misconception(
            "Euclidean distance",
            distance,
            "You rank by the distance of the tips. A short vector and a long one can point the same way with tips far "
            "apart: the cosine looks at the direction alone.",
            also=distance_too,
        ),
        Misconception(
            "opposite counts as near",
            size,
            "You rank by the size of the cosine, so that −0.9 beats 0.5. A vector that points the opposite way is the "
            "farthest of all.",
            also=size_too,
        ),
        Misconception(
            "farthest first",
            last,
            "These are the tokens that point most nearly the opposite way. The largest cosine comes first. "
            "(`argsort` sorts upwards unless told otherwise.)",
            also=[*last_too, lambda weight, index, k: cosines(weight, weight[index]).argsort()[:k]],
        ),
        Misconception(
            "best last",
            lambda weight, index, k: turned(nearest_tokens(weight, index, k)),
            "The right tokens, and the nearest stands at the end. Best first.",
            also=[lambda weight, index, k: turned(wrong_nearest(weight, index, k, left_out=False))],
        ),
        Misconception(
            "columns normalised",
            lambda weight, index, k: best(column_cosines(weight, None, row=index), [index], k),
            "You divide each feature by its length over all tokens. The length that counts is that of a token's row: "
            "the last axis.",
        ),
        Misconception(
            "NaN wins",
            nan,
            "A row of zeros has length 0, and you divide 0 by 0. NaN then sorts above every number, so that the "
            "padding row becomes everybody's best friend. Let a row without length have cosine 0.",
            also=nan_too,
        ),
        Misconception(
            "correlation",
            centred,
            "You take away each row's mean first: that is the correlation, a relative of the cosine. The cosine leaves "
            "the rows where they are.",
            also=centred_too,
        ),
        Misconception(
            "cosines returned",
            lambda weight, index, k: cosines(weight, weight[index])[nearest_tokens(weight, index, k)],
            "You return the cosines. Return the indices that have them: `topk` gives both, the values first.",
            also=[
                lambda weight, index, k: (
                    cosines(weight, weight[index])[nearest_tokens(weight, index, k)],
                    nearest_tokens(weight, index, k),
                ),
                lambda weight, index, k: (
                    nearest_tokens(weight, index, k),
                    cosines(weight, weight[index])[nearest_tokens(weight, index, k)],
                ),
            ],
        ),
    ]


NEAREST = Exercise(
    id="embeddings.nearest",
    chapter=1,
    title="Nearest tokens by cosine",
    kind="code",
    points=3,
    difficulty=3,
    minutes=15,
    signature="nearest_tokens(weight, index, k)",
    why="Whoever says that two words are near each other has run this function.",
    reference=nearest_tokens,
    stages=[
        four_arrows,
        opposite_arrows,
        drawn_tables,
        row_of_zeros,
        parallel_rows,
        exact_opposites,
        token_of_zeros,
        nearest_in_double,
    ],
    hints=[
        "cos(a, b) = a·b / (|a| |b|). One matrix product gives the dot products of all V rows with one of them.",
        "The lengths: a norm along which axis? It should give V numbers, one for each token.",
        "The token itself has the largest cosine of all, 1. Which score makes sure that it is never chosen?",
        "`topk` gives values and indices, best first. Then look at a row of zeros: what is 0 divided by 0, and where "
        "would it land in your order?",
    ],
    misconceptions=neighbour_slips(),
)

# --- embeddings.analogy -----------------------------------------------------------------------------------------------


def analogy(weight, a, b, c, k):
    return best(cosines(weight, weight[a] - weight[b] + weight[c]), [a, b, c], k)


def wrong_analogy(weight, a, b, c, k, *, signs=(1, -1, 1), score=cosines, left_out="abc", forbidden_score=-INF):
    target = sum(sign * weight[row] for sign, row in zip(signs, (a, b, c)))
    out = [{"a": a, "b": b, "c": c}[letter] for letter in left_out]
    return best(score(weight, target), out, k, forbidden_score=forbidden_score)


def too_few_left(weight, a, b, c, k):
    with_inputs = wrong_analogy(weight, a, b, c, k, left_out="")
    return with_inputs[~torch.isin(with_inputs, torch.tensor([a, b, c]))]


def unit_rows(weight, a, b, c, k):
    return analogy(directions(weight), a, b, c, k)


def careless_as_well(**slip):
    """The slip alone, and by a learner who does not leave the inputs out either."""
    return [partial(wrong_analogy, **slip), partial(wrong_analogy, **slip, left_out="")]


def parallelogram(seed):
    "A parallelogram on paper: rows 0, 1, 2 and its fourth corner, row 4. The best two."
    weight = torch.tensor([[4.0, 1.0], [1.0, 1.0], [1.0, 3.0], [-1.0, 2.0], [4.0, 3.2], [3.0, 0.0], [9.0, 2.0]])
    return [Case(weight, 0, 1, 2, 2)]


def drawn_analogies(seed):
    "Drawn tables of several sizes: indices, best first."
    rng = generator(seed)
    return [
        Case(table(rng, V, D) * (0.2 + torch.rand(V, 1, generator=rng)), V - 1, 1, V // 2, k)
        for V, D, k in [(9, 4, 3), (8, 11, 5), (31, 6, 4), (24, 3, 21)]
    ]


def answer_is_an_input(seed):
    "A small difference between b and c: then a − b + c lies next to a itself, and a is not an answer."
    rng = generator(seed)
    weight = table(rng, 10, 4)
    weight[5] = weight[3] + 0.05 * table(rng, 1, 4)[0]
    return [Case(weight, 7, 3, 5, 2), Case(weight, 3, 7, 7, 3)]


def analogy_beside_zeros(seed):
    "A row of zeros in the table, and a table in float64."
    rng = generator(seed)
    weight = table(rng, 8, 3, torch.float64)
    weight[0] = 0
    return [Case(weight, 1, 2, 3, 3), Case(weight, 6, 5, 4, 5)]


def analogy_slips():
    plus_minus, *plus_minus_too = careless_as_well(signs=(1, 1, -1))
    swapped, *swapped_too = careless_as_well(signs=(-1, 1, 1))
    all_added, *all_added_too = careless_as_well(signs=(1, 1, 1))
    dot, *dot_too = careless_as_well(score=dots)
    distance, *distance_too = careless_as_well(score=closeness)
    last, *last_too = careless_as_well(score=lambda weight, vector: -cosines(weight, vector))
    nan, *nan_too = careless_as_well(score=cosines_with_nan)
    return [
        Misconception(
            "inputs included",
            partial(wrong_analogy, left_out=""),
            "You let a, b and c be answers, and often one of them wins: a − b + c usually lies nearest to a itself. "
            "That is worth knowing, and it is why everybody leaves the three out.",
        ),
        Misconception(
            "only the first left out",
            partial(wrong_analogy, left_out="a"),
            "You leave a out, and c still wins now and then. All three inputs are no answer.",
            also=[partial(wrong_analogy, left_out=letters) for letters in ("b", "c", "ab", "ac", "bc")],
        ),
        Misconception(
            "inputs left out too late",
            too_few_left,
            "You choose k tokens and then take the inputs away, so that fewer than k are left. Leave them out before "
            "you choose.",
        ),
        Misconception(
            "inputs set to zero",
            partial(wrong_analogy, forbidden_score=0.0),
            "You give the inputs a cosine of 0, and tokens with a negative cosine come after them. Only a score of "
            "−inf is below everything.",
        ),
        Misconception(
            "a + b − c",
            plus_minus,
            "You compute a + b − c. In king − man + woman it is the second that is taken away, and the third is added.",
            also=plus_minus_too,
        ),
        Misconception(
            "b − a + c",
            swapped,
            "You compute b − a + c: the step in the other direction. Start from a, take b away, add c.",
            also=swapped_too,
        ),
        Misconception(
            "everything added",
            all_added,
            "You add all three. b is taken away: only the difference c − b carries the relation.",
            also=all_added_too,
        ),
        Misconception(
            "unit rows",
            unit_rows,
            "You give every row the length 1 before you add. Some tools do that, and it is a fair choice; here the "
            "rows keep their lengths, and only the comparison is by cosine.",
            also=[lambda weight, a, b, c, k: wrong_analogy(directions(weight), a, b, c, k, left_out="")],
        ),
        Misconception(
            "dot product",
            dot,
            "You rank by dot product, so long vectors win, wherever they point. Rank by cosine.",
            also=dot_too,
        ),
        Misconception(
            "Euclidean distance",
            distance,
            "You rank by the distance of the tips. Rank by cosine: the direction alone.",
            also=distance_too,
        ),
        Misconception(
            "farthest first",
            last,
            "These point most nearly the opposite way. The largest cosine comes first.",
            also=last_too,
        ),
        Misconception(
            "neighbours of a",
            lambda weight, a, b, c, k: best(cosines(weight, weight[a]), [a, b, c], k),
            "These are the neighbours of a: b and c play no part. (Compare with this baseline in the chapter: it is "
            "often hard to beat.)",
        ),
        Misconception(
            "NaN wins",
            nan,
            "A row of zeros has length 0, and you divide 0 by 0. NaN then sorts above every number. Let a row without "
            "length have cosine 0.",
            also=nan_too,
        ),
        Misconception(
            "cosines returned",
            lambda weight, a, b, c, k: cosines(weight, weight[a] - weight[b] + weight[c])[analogy(weight, a, b, c, k)],
            "You return the cosines. Return the indices that have them: `topk` gives both, the values first.",
            also=[
                lambda weight, a, b, c, k: (
                    analogy(weight, a, b, c, k),
                    cosines(weight, weight[a] - weight[b] + weight[c])[analogy(weight, a, b, c, k)],
                )
            ],
        ),
    ]


ANALOGY = Exercise(
    id="embeddings.analogy",
    chapter=1,
    title="King − man + woman",
    kind="code",
    points=3,
    difficulty=3,
    minutes=10,
    signature="analogy(weight, a, b, c, k)",
    why="The most quoted result about embeddings depends on three tokens that are quietly left out.",
    reference=analogy,
    stages=[parallelogram, drawn_analogies, answer_is_an_input, analogy_beside_zeros],
    hints=[
        "It is nearest_tokens with another vector in the middle: weight[a] − weight[b] + weight[c].",
        "Three tokens are no answer. A list of indices may stand in the square brackets on the left of an `=`.",
        "b and c may be the same token. Does your way of leaving out still leave k answers?",
    ],
    misconceptions=analogy_slips(),
)

# --- embeddings.parameters --------------------------------------------------------------------------------------------

PARAMETERS = Exercise(
    id="embeddings.parameters",
    chapter=1,
    title="The size of a table",
    kind="number",
    points=1,
    difficulty=1,
    minutes=3,
    why="Before the model has computed anything, this many numbers must be stored and learned.",
    reference=30_000 * 512,
    hints=[
        "How many rows has the table, and how many numbers stand in each?",
        "Is there anything else in it: a bias, a position? Look at the library's TokenEmbedding.",
        "Parameters, not bytes, and the table alone: neither the output matrix nor the positions belong to it.",
    ],
    misconceptions=[
        Misconception(
            "added",
            30_000 + 512,
            "You added the two sizes. Each of the 30,000 rows holds 512 numbers.",
        ),
        Misconception(
            "tokens only",
            30_000,
            "That is the number of rows. Each of them holds 512 numbers.",
            also=[512],
        ),
        Misconception(
            "bytes",
            30_000 * 512 * 4,
            "That is the table in bytes, at four bytes a float32. The question asks how many parameters there are.",
        ),
        Misconception(
            "in millions",
            15.36,
            "The size is right, the unit is not: that is in millions.",
            rtol=0.03,
        ),
        Misconception(
            "input and output",
            2 * 30_000 * 512,
            "You counted the output matrix as well. It has the same shape, and with tied weights it is the same "
            "tensor; the question is about the token table alone.",
        ),
        Misconception(
            "positions counted in",
            30_000 * 512 + 512 * 512,
            "You counted the table of positions as well. That is another table, with one row for each place.",
        ),
        Misconception(
            "with a bias",
            30_000 * 512 + 512,
            "You counted a bias. A look-up has none: it gives the row as it is.",
            also=[30_000 * 512 + 30_000],
        ),
        Misconception(
            "square",
            512 * 512,
            "That is a square matrix, such as attention has. The table has one row for each token of the vocabulary.",
            also=[30_000**2],
        ),
        Misconception(
            "rounded",
            15_000_000,
            "Near, and rounded. The count is exact: give every digit.",
            rtol=0.02,
            also=[15_400_000],
        ),
    ],
)

# --- embeddings.gradient_rows -----------------------------------------------------------------------------------------

GRADIENT_ROWS = Exercise(
    id="embeddings.gradient_rows",
    chapter=1,
    title="Who learns from this batch?",
    kind="choice",
    points=2,
    difficulty=3,
    minutes=8,
    why="A word that is never read never learns. Whether that is true hangs on one line of the model.",
    hints=[
        "A look-up copies rows. Change a row that was not copied: does anything behind it change?",
        "Gradients of one tensor that is used several times are added.",
        "With tied weights the same row is also compared with the last hidden state, to give that token's logit. Which "
        "logits does the softmax use?",
        "An optimizer may move a weight without any gradient. Two things in AdamW do.",
    ],
    options=[
        Option(
            "a",
            "Untied: rows 3 and 7 get a gradient, the other eight get exactly zero.",
            True,
            "Right: the loss depends on the table through the copied rows alone.",
        ),
        Option(
            "b",
            "Untied: row 3 gets the sum of what its two places send back.",
            True,
            "Right: one row, copied twice, so two gradients are added.",
        ),
        Option(
            "c",
            "Untied: all ten rows get a gradient, because the softmax compares all ten tokens.",
            False,
            "The softmax does compare all ten, through the output matrix. Untied, that is another tensor, and it is "
            "that one whose rows all get a gradient.",
        ),
        Option(
            "d",
            "Untied: the row of the token to be predicted, 5, gets a gradient as well.",
            False,
            "Token 5 is a target here. Targets meet the output matrix, not the table: row 5 was never looked up.",
        ),
        Option(
            "e",
            "Tied: all ten rows get a gradient.",
            True,
            "Right: tied, each row is also the output weight of its token, and softmax pushes every logit a little.",
        ),
        Option(
            "f",
            "A row without a gradient stays as it is, whatever the optimizer.",
            False,
            "Plain SGD leaves it alone. AdamW shrinks it by weight decay in every step, and the momentum of earlier "
            "batches moves it on.",
        ),
    ],
)

EXERCISES = [MERGE_PAIR, LOOKUP, ONE_HOT, NEAREST, ANALOGY, PARAMETERS, GRADIENT_ROWS]
