"""Numbers in figures and their texts: three digits with a prefix, shares in percent, entropy in nats."""

import numpy as np


def short(value: float, unit: str = "") -> str:
    """Return three digits and a prefix: 124,439,808 → "124 M"; with a unit, 16e9 bytes → "16.0 GB"."""
    prefixes = ("", "k", "M", "G" if unit else "B", "T", "P", "E", "Z")
    power = 0
    while abs(value) >= 999.5 and power < len(prefixes) - 1:
        value, power = value / 1000, power + 1
    digits = 0 if power == 0 or abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    return f"{value:.{digits}f} {prefixes[power]}{unit}".rstrip()


def percent(share: float) -> str:
    """Return a share as a reader would say it: "46%", and "under 1%" instead of 0%."""
    if 0 < share < 0.005:
        return "under 1%"
    return f"{share:.0%}"


def share(p: float) -> str:
    """Return a probability in percent with a useful number of digits: "99.7%", "46%", "9.3%", "<0.1%"."""
    if p > 0.999 or p < 0.001:
        return ">99.9%" if p > 0.999 else "<0.1%"
    return f"{100 * p:.{1 if p > 0.99 or p < 0.1 else 0}f}%"


def entropy(p: np.ndarray) -> float:
    """Return −Σ p ln p in nats: ln n for n equal probabilities, 0 for a single one; 0 ln 0 = 0."""
    positive = p[p > 0]
    return float(-(positive * np.log(positive)).sum()) + 0.0  # + 0.0 turns −0 into 0
