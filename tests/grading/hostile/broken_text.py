# Text that no file can hold: half a surrogate pair in answers, keys, messages and names; NUL; a megabyte.
# expects: attention.softmax attention.who_is_it masks.patterns attention.memory masks.causal embeddings.merge_pair heads.merge
# %%
half = "\ud800 \udfff \x00 \x1b[2J \u202e"
attention_memory = half
masks_patterns = [half, half]


def softmax(x, dim):
    raise ValueError(half)


def most_attended(tokens, embeddings, query_token):
    return {half: half}


def causal_mask(T, S=None):
    print(half)
    raise type(half.replace("\x00", ""), (Exception,), {})(half * 1000)


def merge_pair(tokens, pair):
    print(half)
    return [half] * len(tokens)


def merge_heads(x):
    return type("T" * 1_000_000, (), {})()
