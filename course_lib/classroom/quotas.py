"""What a submission may use."""

from dataclasses import asdict, dataclass, fields


@dataclass(frozen=True)
class Quotas:
    """Seconds are of computing, for one cell, for one exercise (0: as the exercise says) and, by the clock on the wall,
    for all of a submission. Bytes: of memory for one process and for a submission with all its processes, of files
    altogether and for one of them.

    Errors: ValueError for a limit that leaves nothing.
    """

    cell: float = 60.0
    exercise: float = 0.0
    total: float = 1200.0
    memory: int = 2 << 30
    tree: int = 3 << 30
    disk: int = 64 << 20
    file: int = 32 << 20
    processes: int = 32

    def __post_init__(self):
        for field in fields(self):
            value = getattr(self, field.name)
            if not value >= 0 or (value == 0 and field.name != "exercise"):  # NaN is neither
                raise ValueError(f"the limit {field.name}={value} must be positive")

    def as_dict(self) -> dict[str, float]:
        return asdict(self)
