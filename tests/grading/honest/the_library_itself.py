# Answers are computed with the course's own library, which learners are meant to read: its models, its accounting, its
# trained Tinytown model, its text. That is an answer like any other, unless it calls the very function that is asked for.
# expects: counting.gpt2 heads.parameters embeddings.lookup masks.causal heads.module
# earns: counting.gpt2 heads.parameters embeddings.lookup
# %%
import torch

from course_lib import masks
from course_lib.counting import count_parameters as count
from course_lib.heads import MultiHeadAttention as Library
from course_lib.config import TransformerConfig
from course_lib.grading import check, hint, progress
from course_lib.pretrained import load_pretrained
from course_lib.tinytown import Tinytown, WordTokenizer
from course_lib.live import explore, show
# %%
model, tokenizer = load_pretrained("tinytown")
ids = torch.tensor([tokenizer.encode("once there was a", end=False)])
with torch.no_grad():
    print(tokenizer.decode([int(model(ids)[0, -1].argmax())]), len(WordTokenizer()), Tinytown(1).sample(2))

def embedding_lookup(weight, ids):
    return weight[ids]
# %%
config = TransformerConfig(
    vocab_size=50257, max_seq_len=2048, d_model=768, n_heads=12, n_layers=10, d_ff=3072,
    positions="learned", norm="layer", norm_position="pre", activation="gelu_tanh", bias=True, tie_weights=True,
)
counting_gpt2 = count(config).total
# %%
heads_parameters = sum(p.numel() for p in Library(512, 8).parameters())
# %%
def causal_mask(T, S=None):
    return masks.causal_mask(T, S)
# %%
class MultiHeadAttention(Library):
    def forward(self, x, mask=None):
        return super().forward(x, mask=mask, need_weights=True)[0]

explore("heads.module", MultiHeadAttention)
