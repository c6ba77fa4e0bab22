# Numbers that are none: subclasses that equal everything, NaN, infinities, integers without end, text, truth.
# expects: attention.memory embeddings.parameters positions.wavelength positions.learned_parameters heads.parameters normalization.parameters efficiency.kv_cache_bytes gpt.initial_loss counting.gpt2 counting.bert counting.llama7b training.limit
# earns: counting.bert
# %%
import decimal
import fractions

import numpy as np
import torch


class Whole(int):
    def yes(self, other=None):
        return True

    def same(self, other=None):
        return self

    __eq__ = __le__ = __ge__ = yes
    __sub__ = __rsub__ = __abs__ = __pos__ = __mul__ = __rmul__ = __neg__ = same
    __hash__ = int.__hash__

    def __str__(self):
        return "16777216"

    def __float__(self):
        return 15360000.0

    __int__ = __index__ = lambda self: 15360000


class Real(float):
    __eq__ = __le__ = lambda self, other: True
    __sub__ = __rsub__ = __abs__ = lambda self, other=None: Real(0)
    __pos__ = lambda self: 16777216.0
    __hash__ = float.__hash__


class Text(str):
    __eq__ = lambda self, other: True
    __hash__ = str.__hash__
    __str__ = lambda self: 262144


attention_memory = Whole(3)
embeddings_parameters = Real(2)
positions_wavelength = float("nan")
positions_learned_parameters = Text("262144")
heads_parameters = True
normalization_parameters = 10**400
efficiency_kv_cache_bytes = np.array([2147483648], dtype=object)
gpt_initial_loss = complex(11.761783, 0)
counting_gpt2 = decimal.Decimal("NaN")
counting_bert = np.float64(334092288)
counting_llama7b = torch.tensor([float("inf")])
training_limit = fractions.Fraction(1, 3)
