"""How far a long run has come, and how long it will take."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """One report of a long run.

    Attributes:
        stage: what is being done, for people.
        done: how many of `total` are done.
        total: how many there are.
        seconds_left: at the pace so far; None while nothing is known.
    """

    stage: str
    done: int
    total: int
    seconds_left: float | None


OnProgress = Callable[[Progress], None]


def no_progress(progress: Progress) -> None:
    """Tell nobody."""


class Pace:
    """Reports progress and estimates what is left from the work done in this run.

    What an earlier run had done already counts as done, and not for the pace.

    Example:
        >>> pace = Pace("washing", 3, lambda p: print(p.done, p.total, p.seconds_left is None))
        >>> pace.skip()
        1 3 True
        >>> pace.step()
        2 3 False
    """

    def __init__(self, stage: str, total: int, on_progress: OnProgress) -> None:
        self._stage, self._total, self._tell = stage, total, on_progress
        self._done = self._worked = 0
        self._start = time.monotonic()

    def skip(self) -> None:
        """One was done already."""
        self._done += 1
        self._report()

    def step(self) -> None:
        """One was done now."""
        self._done += 1
        self._worked += 1
        self._report()

    def _report(self) -> None:
        left = None
        if self._worked:
            left = (time.monotonic() - self._start) / self._worked * (self._total - self._done)
        self._tell(Progress(self._stage, self._done, self._total, left))
