"""Timing that survives a shared machine: variants take turns, the best of many counts, percentiles tell the noise."""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds a pair over all repeats.

    `best` is what the machine can do, p50 and p90 what it did; `processor` is the best processor time, summed over
    threads: it does not count the time that other processes took away.
    """

    best: float
    p50: float
    p90: float
    processor: float
    repeats: int


def interleaved(variants: dict[str, Callable[[], object]], pairs: int, repeats: int) -> dict[str, Timing]:
    """Run every variant in turn, `repeats` times, after one run that is not counted."""
    for run in variants.values():
        run()
    wall: dict[str, list[float]] = {name: [] for name in variants}
    processor: dict[str, list[float]] = {name: [] for name in variants}
    gc.collect()
    gc.disable()
    try:
        for _ in range(repeats):
            for name, run in variants.items():
                used, start = time.process_time(), time.perf_counter()
                run()
                wall[name].append((time.perf_counter() - start) / pairs * 1e3)
                processor[name].append((time.process_time() - used) / pairs * 1e3)
    finally:
        gc.enable()
    return {
        name: Timing(
            best=min(times),
            p50=float(np.percentile(times, 50)),
            p90=float(np.percentile(times, 90)),
            processor=min(processor[name]),
            repeats=repeats,
        )
        for name, times in wall.items()
    }
