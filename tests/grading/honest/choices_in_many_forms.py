# A choice is answered with a set, a list, a tuple, a frozenset, the keys of a dictionary made into a list, or a text that
# was made a set. The one that puts all letters into a single text names no option: it is not earned.
# expects: counting.changes normalization.batch_vs_layer encoder_decoder.families sampling.which_are_true embeddings.gradient_rows masks.patterns
# earns: counting.changes normalization.batch_vs_layer encoder_decoder.families sampling.which_are_true embeddings.gradient_rows
# %%
counting_changes = ["b", "d", "f", "b"]
# %%
normalization_batch_vs_layer = ("g", "e", "c", "a")
# %%
encoder_decoder_families = frozenset(["a", "c"]) | {"e", "g"}
# %%
picks = {"a": "sea", "b": "fish", "e": "end", "c": ""}
embeddings_gradient_rows = [key for key, why in picks.items() if why]
# %%
sampling_which_are_true = set("bcf")
# %%
masks_patterns = "bdi"
