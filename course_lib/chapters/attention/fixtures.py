"""How the tests of chapter 2 use an answer if one call is not enough: see `grading/fixtures.py`."""


def measured_or_scattered(answer, d_k, n_pairs):
    """Return the answer's values. Below a hundred pairs, return those for n_pairs, n_pairs + 1, … up to four times as
    many."""
    if n_pairs >= 100:
        return answer(d_k, n_pairs)
    return [answer(d_k, number) for number in range(n_pairs, 4 * n_pairs)]
