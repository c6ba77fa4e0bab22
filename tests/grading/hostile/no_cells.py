# A notebook from which everything was deleted: every exercise still has a result.
# expects: attention.softmax attention.memory masks.patterns attention.why_scale
