"""What runs with `pytest --device`: all notebooks, the tests that take a device, and those of the library."""

# Files whose tests make their tensors by default, and so on the device.
LIBRARY = [
    *("attention", "cache", "embeddings", "feed_forward", "heads", "linear", "masks", "normalization"),
    *("positions", "sampling"),
]

# Tests in these files that stay on the CPU, and why.
OF_THE_CPU = {
    "linear::test_few_tokens_are_shared_out_and_everything_else_is_pytorchs": "counts the CPU's threads",
    "linear::test_only_one_thread_at_a_time_changes_the_setting_of_the_process": "counts the CPU's threads",
}


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
