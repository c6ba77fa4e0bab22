# One answer is indented with tabs, one with two spaces, one with seven. Python takes each, so long as a block keeps to its
# own.
# expects: embeddings.lookup embeddings.one_hot embeddings.merge_pair
# earns: embeddings.lookup embeddings.one_hot embeddings.merge_pair
# %%
import torch
# %%
def embedding_lookup(weight, ids):
	rows = []
	for line in ids:
		rows.append(weight[line])
	return torch.stack(rows)
# %%
def one_hot_lookup(weight, ids):
  hot = (ids[..., None] == torch.arange(len(weight))).to(weight)
  return hot @ weight
# %%
def merge_pair(tokens, pair):
       out, i = [], 0
       while i < len(tokens):
           hit = tokens[i : i + 2] == list(pair)
           out.append(pair[0] + pair[1] if hit else tokens[i])
           i += 1 + hit
       return out
