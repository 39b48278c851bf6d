"""How sure a difference is: the paired bootstrap over queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_AT_ONCE = 1 << 22


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference of two means, with the interval in which 95 % of the resampled ones lie.

    Attributes:
        value: the difference itself.
        low: lower end.
        high: upper end.
    """

    value: float
    low: float
    high: float

    @property
    def certain(self) -> bool:
        """Whether the interval leaves 0 out."""
        return not self.low <= 0 <= self.high


def paired_difference(
    groups: Sequence[tuple[Floats, Floats]], *, seed: int = 0, rounds: int = 10_000, coverage: float = 0.95
) -> Difference:
    """The mean over data sets of mean(b) − mean(a), and its percentile bootstrap interval.

    Queries are drawn with replacement within each data set, the same ones for both methods: what makes a query
    hard for both cancels out.

    Args:
        groups: for each data set the values of the same queries under a and under b; NaN under both: left out.
        seed: of the draws.
        rounds: of resampling.
        coverage: of the interval.

    Example:
        >>> a, b = np.array([0.0, 0.5, 1.0]), np.array([0.1, 0.6, 1.1])
        >>> difference = paired_difference([(a, b)])
        >>> round(difference.value, 3), round(difference.low, 3), round(difference.high, 3)
        (0.1, 0.1, 0.1)
    """
    if not groups:
        raise ValueError("groups: expected at least one data set, got none")
    if rounds < 1 or not 0 < coverage < 1:
        raise ValueError(f"rounds and coverage: expected at least 1 and a fraction, got {rounds} and {coverage}")
    values: list[float] = []
    resampled = np.zeros(rounds)
    draw = np.random.default_rng(seed)
    for a, b in groups:
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        if a.shape != b.shape or not np.array_equal(np.isnan(a), np.isnan(b)):
            raise ValueError("groups: expected the same queries under both methods")
        delta = (b - a)[~np.isnan(a)]
        if not delta.size:
            raise ValueError("groups: expected at least one query with a positive, got none")
        values.append(float(delta.mean()))
        step = max(1, _AT_ONCE // delta.size)
        for start in range(0, rounds, step):
            count = min(step, rounds - start)
            chosen = draw.integers(0, delta.size, (count, delta.size))
            resampled[start : start + count] += delta[chosen].mean(axis=1)
    outside = (1 - coverage) / 2
    low, high = np.quantile(resampled / len(groups), [outside, 1 - outside])
    return Difference(float(np.mean(values)), float(low), float(high))
