"""Search end to end in made-up indexes of growing size: building, first stage, fetching, matching; cold and warm.

Descriptors are random with structure: pictures of one group share a third of theirs. Every index is searched in a
process of its own, so that its memory is its own; it is deleted as soon as it has been measured.
"""

import multiprocessing
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import normalize

from benchmarks import machine
from elvis.indexing import card_for
from elvis.models import ChamferConfig, ChamferTransport
from elvis.search import Searcher
from elvis.store import Index, Record, Stamp
from elvis.values import Descriptors

PLACES, CHANNELS, GLOBAL, GROUP = 600, 128, 384, 10
DEPTH, COMMIT = 400, 400
WARM, COLD = 30, 5
STAGES = ("nearest", "fetch", "matching", "boxes")


class Made:
    """In the place of an extractor: it says what the made-up descriptors are, and describes nothing."""

    dim, image_dim, fingerprint = CHANNELS, GLOBAL, "made up"
    engine, precision = "none", "none"

    class settings:  # noqa: N801  an attribute with one method
        @staticmethod
        def to_dict() -> dict[str, Any]:
            return {"made": "up"}


def matcher() -> ChamferTransport:
    return ChamferTransport(ChamferConfig(standardise=True))


def picture(number: int, places: int = PLACES, channels: int = CHANNELS) -> Descriptors:
    """One picture of its group; the same for the same number."""
    group = torch.Generator().manual_seed(number // GROUP)
    own = torch.Generator().manual_seed(10**9 + number)
    vectors = torch.randn(1, places, channels, generator=own)
    shared = places // 3
    vectors[:, :shared] = torch.randn(1, shared, channels, generator=group) + 0.5 * vectors[:, :shared]
    xy = torch.rand(1, places, 2, generator=own)
    whole = torch.randn(1, GLOBAL, generator=group) + 0.7 * torch.randn(1, GLOBAL, generator=own)
    strength = torch.linspace(1, 0, places)[None]
    return Descriptors(
        normalize(vectors, dim=2),
        xy=xy,
        strength=strength,
        size=torch.tensor([[640, 480]]),
        image_vector=normalize(whole, dim=1),
    )


def build(folder: Path, pictures: int, store: str, places: int = PLACES, channels: int = CHANNELS) -> dict[str, float]:
    """Fills an index through the store's writer; seconds in the writer, and bytes."""
    made = Made()
    made.dim = channels
    seconds = 0.0
    with Index.create(folder, card_for(made, matcher(), store=store)) as index:
        for block in _blocks(pictures, max(COMMIT, 20_000 // places)):
            records = []
            for number in block:
                one = picture(number, places, channels)
                records.append(Record(f"/made/{number:08d}.jpg", Stamp(1, 1, f"{number:064x}"), one, one))
            start = time.perf_counter()
            index.put(records)
            seconds += time.perf_counter() - start
        start = time.perf_counter()
        index.compact()
        seconds += time.perf_counter() - start
        size = index.info()["bytes"]
    return {"seconds_building": seconds, "bytes": size}


def _blocks(pictures: int, size: int) -> Iterator[range]:
    for start in range(0, pictures, size):
        yield range(start, min(start + size, pictures))


def run(sizes: list[int], scratch: Path, store: str) -> list[dict]:
    """A record for each size."""
    about, records = machine.description(), []
    for pictures in sizes:
        folder = scratch / f"made-{pictures}"
        try:
            built = build(folder, pictures, store)
            measured = _apart(measure, folder, pictures)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        record = {"suite": "search", "variant": store, "pictures": pictures, "candidates": DEPTH, **built, **measured}
        records.append(record | about)
        print(
            f"{pictures} pictures: warm {measured['warm_total_p50']:.0f} ms ("
            + ", ".join(f"{stage} {measured[f'warm_{stage}_p50']:.0f}" for stage in STAGES)
            + f"), cold {measured['cold_total_p50']:.0f} ms, {measured['mib']:.0f} MiB",
            flush=True,
        )
    return records


def run_first_stage(sizes: list[int], scratch: Path) -> list[dict]:
    """A record for each size: global vectors alone beside nearly empty descriptors, as many as time allows."""
    about, records = machine.description(), []
    for pictures in sizes:
        folder = scratch / f"made-first-{pictures}"
        try:
            built = build(folder, pictures, "float16", places=1, channels=8)
            measured = _apart(measure_first_stage, folder, pictures)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        record = {"suite": "search", "variant": "first stage", "pictures": pictures, "candidates": DEPTH}
        records.append(record | built | measured | about)
        print(
            f"{pictures} global vectors: {measured['nearest_p50']:.0f} ms, recall {measured['recall']:.4f}, "
            f"{measured['mib']:.0f} MiB, opening {measured['opening_ms']:.0f} ms",
            flush=True,
        )
    return records


def measure_first_stage(folder: Path, pictures: int) -> dict[str, float]:
    """Milliseconds of `nearest`, and the share of the exact nearest that it finds."""
    import lancedb  # noqa: F401  its import is no part of a search

    before, start = _mib(), time.perf_counter()
    with Index.open(folder) as index:
        numbers = np.linspace(0, pictures - 1, WARM).astype(int)
        queries = torch.cat([picture(int(number), 1, 8).image_vector for number in numbers])
        # Not the stored vectors themselves: a search asks with another picture of the group.
        queries = normalize(queries + 0.3 * torch.randn(queries.shape, generator=torch.Generator().manual_seed(1)) / 20)
        index.nearest(queries[0], DEPTH)
        opening = 1e3 * (time.perf_counter() - start)
        times, found = [], []
        for query in queries:
            start = time.perf_counter()
            found.append({neighbour.path for neighbour in index.nearest(query, DEPTH)})
            times.append(1e3 * (time.perf_counter() - start))
        memory = _mib() - before
        table = index.to_arrow()
    exact = np.zeros((len(queries), 0), np.float32)
    for piece in table["vector"].chunks:
        exact = np.concatenate([exact, queries.numpy() @ piece.flatten().to_numpy().reshape(-1, GLOBAL).T], axis=1)
    paths = np.array(table["path"].to_pylist())
    best = [set(paths[np.argsort(-row)[:DEPTH]]) for row in exact]
    recall = float(np.mean([len(a & b) / len(b) for a, b in zip(found, best, strict=True)]))
    return {
        "opening_ms": opening,
        "nearest_p50": _percentile(times, 50),
        "nearest_p95": _percentile(times, 95),
        "nearest_best": min(times),
        "recall": recall,
        "mib": memory,
    }


def _apart(work: Any, *given: Any) -> dict:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, given)


def measure(folder: Path, pictures: int) -> dict[str, float]:
    """Milliseconds by stage, warm and cold, of pictures of the index looked for among the others."""
    machine.keep_memory()
    import lancedb  # noqa: F401  its import is no part of a search

    forget(folder)
    before, start = _mib(), time.perf_counter()
    with Index.open(folder) as index:
        searcher = Searcher(index, depth=DEPTH, extractor=Made())  # type: ignore[arg-type]
        queries = [picture(int(number)) for number in np.linspace(0, pictures - 1, WARM + 1)]
        index.nearest(queries[-1].image_vector[0], DEPTH)
        result = {"opening_ms": 1e3 * (time.perf_counter() - start)}
        first = searcher.search_described([queries[-1]])
        result["first_ms"] = _total(first.seconds)
        warm = [searcher.search_described([query]).seconds for query in queries[:WARM]]
        result["mib"] = _mib() - before
        cold = []
        for query in queries[:COLD]:
            forget(folder)
            cold.append(searcher.search_described([query]).seconds)
    for name, runs in (("warm", warm), ("cold", cold)):
        for stage in STAGES:
            values = [1e3 * getattr(seconds, stage) for seconds in runs]
            result |= {f"{name}_{stage}_p50": _percentile(values, 50), f"{name}_{stage}_p95": _percentile(values, 95)}
            result[f"{name}_{stage}_best"] = min(values)
        totals = [_total(seconds) for seconds in runs]
        result |= {f"{name}_total_p50": _percentile(totals, 50), f"{name}_total_p95": _percentile(totals, 95)}
        result[f"{name}_total_best"] = min(totals)
    return result


def forget(folder: Path) -> None:
    """Drops the pages of an index's files from the system's cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def _total(seconds: Any) -> float:
    return 1e3 * sum(getattr(seconds, stage) for stage in STAGES)


def _percentile(values: list[float], which: float) -> float:
    return float(np.percentile(values, which))


def _mib() -> float:
    import psutil

    return psutil.Process().memory_info().rss / 2**20
