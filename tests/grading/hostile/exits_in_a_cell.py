# sys.exit(0) in a cell before the answers: it costs that cell.
# expects: attention.memory positions.learned_parameters
# earns: attention.memory positions.learned_parameters
# %%
attention_memory = 4 * 2048 * 2048
# %%
import sys

sys.exit(0)
# %%
positions_learned_parameters = 512 * 512
