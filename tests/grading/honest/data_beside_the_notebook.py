# A table and a file of settings lie beside the notebook and in a folder below it, as the learner worked with them. They
# were handed in, so the cells that read them run; one of the files is then written anew.
# expects: attention.memory positions.wavelength
# earns: attention.memory positions.wavelength
# %%
import json
from pathlib import Path

with open("data.csv") as file:
    rows = [line.split(",") for line in file]
attention_memory = int(rows[1][0]) ** 2 * int(rows[1][1])
# %%
settings = json.loads(Path("settings/cfg.json").read_text())
positions_wavelength = 2 * 3.141592653589793 * settings["base"] ** (1 - 2 / settings["d_model"])
Path("data.csv").write_text("tokens,bytes\n")
# %% [file data.csv]
tokens,bytes
2048,4
# %% [file settings/cfg.json]
{"base": 10000, "d_model": 256}
