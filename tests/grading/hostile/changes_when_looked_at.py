# A class whose metaclass answers differently, raises and never ends when it is asked whether anything is written in it.
# expects: normalization.rms_norm attention.memory
# earns: attention.memory
# %%
attention_memory = 2048 * 2048 * 4


class Moody(type):
    asked = 0

    def __getattribute__(cls, name):
        if name in ("__bases__", "__dict__"):
            type.__setattr__(cls, "asked", type.__getattribute__(cls, "asked") + 1)
            if type.__getattribute__(cls, "asked") % 2:
                raise KeyboardInterrupt
        return type.__getattribute__(cls, name)
# %%
class RMSNorm(metaclass=Moody):
    pass
