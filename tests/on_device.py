"""What runs with `pytest --device`: all notebooks, the tests that take a device, and those of the library, whose tensors
are then made on the device."""

LIBRARY = [
    *("attention", "embeddings", "feed_forward", "fine_tuning", "heads", "masks", "normalization", "positions"),
    *("beam", "blocks", "cache", "linear", "models", "models_against_transformers", "pretrained", "trace"),
    *(
        "efficiency",
        "families",
        "glass",
        "inside",
        "interventions",
        "ladder",
        "tinytown",
        "training",
        "training_options",
    ),
    *("sampling", "sampling_batches", "sampling_exercises", "sampling_filters", "transforms", "counting_training"),
    *("experiments_attention", "experiments_blocks", "experiments_counting", "experiments_efficiency"),
    *("experiments_embeddings", "experiments_encoder_decoder", "experiments_feed_forward", "experiments_gpt"),
    *("experiments_heads", "experiments_masks", "experiments_normalization", "experiments_positions"),
    *("experiments_pretrained", "experiments_sampling", "experiments_training"),
    *("grading_calls", "grading_cases", "grading_careless", "grading_diagnosis", "grading_fresh", "grading_hints"),
    *("grading_named", "grading_seeds", "grading_truthful"),
]

# What is of the CPU by its nature.
OF_THE_CPU: dict[str, str] = {}


def of_the_library(path) -> bool:
    """Whether the tests of this file make their tensors on the device."""
    return path.stem.removeprefix("test_") in LIBRARY


def takes_one(item) -> bool:
    """Whether this test takes a device, and so runs on each that there is."""
    return "device" in getattr(item, "fixturenames", ())


def runs(item) -> bool:
    """Whether this test runs with `--device`."""
    name = f"{item.path.stem.removeprefix('test_')}::{getattr(item, 'originalname', item.name)}"
    return item.path.suffix == ".ipynb" or takes_one(item) or (of_the_library(item.path) and name not in OF_THE_CPU)
