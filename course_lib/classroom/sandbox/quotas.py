"""The resource limits of a submission."""

from dataclasses import asdict, dataclass, fields


@dataclass(frozen=True)
class Quotas:
    """The resource limits of a submission.

    Fields:
        cell_timeout, exercise_timeout: seconds of computing for one cell or exercise (0: the exercise's own limit).
        timeout: seconds of real time for the full submission.
        memory, tree: bytes for one process, and for all processes of the submission.
        disk, file: bytes for all files, and for one file.
        processes: the number of processes at a time.

    Errors: ValueError for a limit that leaves nothing.
    """

    cell_timeout: float = 60.0
    exercise_timeout: float = 0.0
    timeout: float = 1200.0
    memory: int = 2 << 30
    tree: int = 3 << 30
    disk: int = 64 << 20
    file: int = 32 << 20
    processes: int = 40  # a DataLoader with eight workers takes 35

    def __post_init__(self):
        for field in fields(self):
            value = getattr(self, field.name)
            if not value >= 0 or (value == 0 and field.name != "exercise_timeout"):  # also true of NaN
                raise ValueError(f"the limit {field.name}={value} must be positive")

    def as_dict(self) -> dict[str, float]:
        return asdict(self)
