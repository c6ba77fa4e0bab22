# Shell lines stand between the imports and the answer, inside of a function that is no answer, and over two lines with a
# backslash. Each is one command to IPython; the Python around it counts.
# expects: embeddings.lookup embeddings.merge_pair embeddings.parameters
# earns: embeddings.lookup embeddings.merge_pair embeddings.parameters
# %%
import torch
!echo "beginning" && \
  echo "and going on"

def embedding_lookup(weight, ids):
    return weight[ids.flatten()].reshape(*ids.shape, weight.shape[1])
!ls -la
# %%
def tidy():
    !rm -f *.tmp
    %cd .
    return True

def merge_pair(tokens, pair):
    out = []
    for token in tokens:
        out.append(token)
        if tuple(out[-2:]) == pair:
            out[-2:] = ["".join(pair)]
    return out
# %%
for word in ["one", "two"]:
    !echo {word}
embeddings_parameters = 30_000 * 512
