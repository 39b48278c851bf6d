"""A whole benchmark run: every data set with every method, results written as they come."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch

import elvis
from elvis.errors import CacheError, DataSetError
from elvis.evaluation.benchmark import EvaluationSettings, FirstStage, Outcome, evaluate, first_stage
from elvis.evaluation.cache import DescriptorCache
from elvis.evaluation.datasets import Benchmark
from elvis.evaluation.gather import Collection, Extracts, exact_fingerprint, gather
from elvis.evaluation.methods import Method
from elvis.evaluation.progress import OnProgress, no_progress
from elvis.evaluation.results import Result, library_code, library_commit, save_results, split_queries
from elvis.values import Descriptors


@dataclass(frozen=True, slots=True)
class Contender:
    """A method, and the descriptors it works on.

    Attributes:
        method: how to rank.
        extractor: gives its descriptors; contenders with extractors of equal fingerprint share them.
        extraction: settings of the extraction, for the record.
    """

    method: Method
    extractor: Extracts
    extraction: Mapping[str, Any] = field(default_factory=dict[str, Any])


def run(
    benchmarks: Sequence[Benchmark],
    contenders: Sequence[Contender],
    cache_folder: Path,
    settings: EvaluationSettings | None = None,
    *,
    out: Path | None = None,
    rankings: Path | None = None,
    split_by: str | None = None,
    on_progress: OnProgress = no_progress,
) -> list[Result]:
    """Measure every method on every data set.

    Args:
        benchmarks: data sets, each with a name of its own.
        contenders: methods, each with a label of its own.
        cache_folder: where descriptors are kept.
        settings: depth and bounds.
        out: folder for `results.jsonl`, written after each method; scores under way are kept there too, so that a
            run that was killed goes on where it stopped. None: nothing is written.
        rankings: file for what every query found: JSON lines with `dataset`, `judgement`, `method`, `query`,
            `ranked`, `scores`, `reranked`; pictures named as in the data set.
        split_by: regular expression on query names; figures for each group beside those for all, of data sets in
            which it tells queries apart.
        on_progress: told as the work goes on.
    """
    settings = settings or EvaluationSettings()
    _check_unique("data set", [benchmark.name for benchmark in benchmarks])
    _check_unique("method", [contender.method.label for contender in contenders])
    for contender in contenders:
        _check_channels(contender)
    for benchmark in benchmarks:
        if split_by is not None:
            split_queries([picture.name for picture in benchmark.queries], split_by)
    if out is not None:
        _make_folder(out / "scores")
    results: list[Result] = []
    with _ranking_file(rankings) as stream:
        for benchmark in benchmarks:
            ready: dict[str, tuple[Collection, FirstStage]] = {}
            for contender in contenders:
                fingerprint = exact_fingerprint(contender.extractor)
                if fingerprint not in ready:
                    cache = DescriptorCache(cache_folder, fingerprint, contender.extraction)
                    collection = gather(benchmark, contender.extractor, cache, on_progress)
                    ready[fingerprint] = collection, first_stage(collection, settings)
                collection, start = ready[fingerprint]
                if not _counts(collection):
                    raise DataSetError(
                        f"{benchmark.name}: every query that has a right picture is missing or unreadable"
                    )
                new, outcomes = _measure(contender, collection, start, settings, out, split_by, on_progress)
                results += new
                if out is not None:
                    save_results(out, new)
                if stream is not None:
                    _write_rankings(stream, ranking_lines(collection.benchmark, contender.method.label, outcomes))
    return results


def _measure(
    contender: Contender,
    collection: Collection,
    start: FirstStage,
    settings: EvaluationSettings,
    out: Path | None,
    split_by: str | None,
    on_progress: OnProgress,
) -> tuple[list[Result], list[Outcome]]:
    benchmark, method = collection.benchmark, contender.method
    depends_on = {
        "dataset_fingerprint": benchmark.fingerprint,
        "pictures": _content(collection),
        "extraction_fingerprint": contender.extractor.fingerprint,
        "precision": contender.extractor.precision,
        "model": method.label,
        "model_fingerprint": method.fingerprint,
        "depth": settings.depth,
        "device": settings.device,
        "code": library_code(),
    }
    keep = (out / "scores", depends_on) if out is not None else None
    began, clock = datetime.now(UTC), time.monotonic()
    outcomes = evaluate(
        collection, start, method.model, settings, name=method.label, keep=keep, on_progress=on_progress
    )
    details = depends_on | {
        "elvis": elvis.__version__,
        "commit": library_commit(),
        "queries": len(benchmark.queries),
        "gallery": len(benchmark.gallery),
        "missing": len(benchmark.missing),
        "unreadable": len(collection.unreadable),
        "extraction": dict(contender.extraction),
        "model_settings": dict(method.config),
        "weights": method.weights,
        "evaluation": asdict(settings),
        "protocol": asdict(benchmark.protocol),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "seed": None,  # nothing is drawn; a head's training seed stands in its settings
        "started": began.isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - clock, 2),
    }
    names = [picture.name for picture in benchmark.queries]
    groups = {"": np.ones(len(names), bool)}
    if split_by is not None and len(found := split_queries(names, split_by)) > 1:
        groups |= found
    results = [
        Result(
            benchmark.name,
            outcome.judgement,
            split,
            method.label,
            method.hand_made,
            benchmark.protocol.metric_name,
            np.where(members, outcome.ap, np.nan),
            np.where(members, outcome.recall, np.nan),
            details,
        )
        for outcome in outcomes
        for split, members in groups.items()
        if not np.isnan(outcome.ap[members]).all()
    ]
    return results, outcomes


def ranking_lines(benchmark: Benchmark, method: str, outcomes: Sequence[Outcome]) -> Iterator[dict[str, Any]]:
    """What every query found, in words: pictures as the data set names them, best first, without what is ignored."""
    names = [picture.name for picture in benchmark.gallery]
    for outcome in outcomes:
        for ranking in outcome.rankings:
            yield {
                "dataset": benchmark.name,
                "judgement": outcome.judgement,
                "method": method,
                "query": benchmark.queries[ranking.query].name,
                "ranked": [names[place] for place in ranking.ranked],
                "scores": ranking.scores.tolist(),
                "reranked": ranking.reranked,
            }


def _write_rankings(stream: TextIO, lines: Iterable[Mapping[str, Any]]) -> None:
    try:
        for line in lines:
            stream.write(json.dumps(line, ensure_ascii=False) + "\n")
        stream.flush()
    except OSError as error:
        raise CacheError(f"rankings cannot be written: {error.strerror}") from error


@contextmanager
def _ranking_file(file: Path | None) -> Generator[TextIO | None]:
    """A file that appears under its name once it is whole; its place is tried out before hours of work."""
    if file is None:
        yield None
        return
    if file.is_dir():
        raise CacheError(f"{file} is a folder: name a file for the rankings")
    _make_folder(file.parent)
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        try:
            stream = temporary.open("w", encoding="utf-8")
        except OSError as error:
            raise CacheError(f"{file} cannot be written: {error.strerror}") from error
        with stream:
            yield stream
        try:
            os.replace(temporary, file)
        except OSError as error:
            raise CacheError(f"{file} cannot be written: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CacheError(f"{folder} cannot be made: {error.strerror}") from error


def _check_unique(what: str, names: Sequence[str]) -> None:
    if not names:
        raise ValueError(f"{what}s: expected at least one, got none")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{what}s: expected every name once, got {', '.join(twice)} again")


def _check_channels(contender: Contender) -> None:
    """A head for other descriptors is refused before any is extracted."""
    if contender.method.model is not None:
        with torch.inference_mode():
            contender.method.model.cpu().prepare(Descriptors(torch.ones(1, 1, contender.extractor.dim)))


def _counts(collection: Collection) -> bool:
    """Whether any query that is there has a right picture."""
    benchmark = collection.benchmark
    return any(
        len(positives) and picture in collection.keys
        for judgement in benchmark.judgements
        for picture, positives in zip(benchmark.queries, judgement.positives, strict=True)
    )


def _content(collection: Collection) -> str:
    digest = hashlib.sha256()
    benchmark = collection.benchmark
    for picture in (*benchmark.queries, *benchmark.gallery):
        digest.update(collection.keys.get(picture, "missing").encode() + b"\n")
    return digest.hexdigest()
