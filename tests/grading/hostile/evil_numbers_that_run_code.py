# Numbers whose every method ends the program, loops or raises what nobody catches. Bounded: 60 seconds.
# expects: attention.memory embeddings.parameters positions.wavelength
# %%
import signal
import sys
import time

signal.alarm(60)


def waits(*args):
    time.sleep(60)


def leaves(*args):
    sys.exit(0)


def interrupts(*args):
    raise KeyboardInterrupt


SPECIAL = ["__eq__", "__hash__", "__str__", "__repr__", "__int__", "__float__", "__index__", "__abs__", "__pos__",
           "__sub__", "__rsub__", "__bool__", "__len__", "__iter__", "__getattribute__", "__format__", "__reduce_ex__"]
attention_memory = type("Waits", (int,), dict.fromkeys(SPECIAL, waits))(3)
embeddings_parameters = type("Leaves", (float,), dict.fromkeys(SPECIAL, leaves))(3)
positions_wavelength = type("Interrupts", (str,), dict.fromkeys(SPECIAL, interrupts))("3")
