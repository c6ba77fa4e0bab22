# Semicolons: at the ends of lines, as one writes them against output, and between statements on one line.
# expects: counting.transformer_512 counting.changes
# earns: counting.transformer_512 counting.changes
# %%
d = 384; V = 20000; L = 8; T = 256;
token_embedding = V * d;
# %%
attention = L * 4 * (d * d + d); feed_forward = L * (2 * d * 4 * d + 4 * d + d); norms = (2 * L + 1) * 2 * d
whole = 2 * token_embedding + T * d + attention + feed_forward + norms;
counting_transformer_512 = {"token_embedding": token_embedding, "position_embedding": T * d, "attention": attention,
    "feed_forward": feed_forward, "norms": norms, "untied_total": whole, "tied_total": whole - token_embedding};
# %%
counting_changes = {"b", "d", "f"}; counting_changes;
