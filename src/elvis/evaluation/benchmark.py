"""Run ranking methods on a data set: global ranking, re-ranking of the best, average precision.

As the paper does: junk leaves the ranking first, then the best `depth` are re-ranked, the tail stays as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from elvis.evaluation import metrics
from elvis.evaluation.datasets.record import Judgement, Picture, Protocol
from elvis.evaluation.first_stage import in_blocks, nearest
from elvis.evaluation.gather import Collection
from elvis.evaluation.prepared import PreparedPictures
from elvis.evaluation.progress import OnProgress, Pace, no_progress
from elvis.evaluation.scores import KeptScores
from elvis.models.base import Matcher

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]

WHOLE_RANKING = 20_000
"""Galleries up to this size are ranked whole; of larger ones only what the metric and the depth need."""


@dataclass(frozen=True, slots=True)
class EvaluationSettings:
    """How methods are run.

    Attributes:
        depth: how many of the best by global vector are re-ranked.
        pairs: how many candidates are scored at once; few keep a CPU's caches warm, a GPU wants hundreds.
        memory: bytes of prepared descriptors held in memory; the rest goes to disk.
        device: where models run.
    """

    depth: int = 400
    pairs: int = 16
    memory: int = 2 << 30
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name in ("depth", "pairs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected at least 1, got {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class Ranking:
    """The gallery as a method ranked it for one query, without what is ignored for it.

    Attributes:
        query: place among the queries.
        ranked: places in the gallery, best first.
        scores: never rising. Of a method that re-ranks, its own score; beyond the depth the lowest of those, less by
            how far the global similarity falls from there on.
        reranked: how many were re-ranked.
    """

    query: int
    ranked: Ids
    scores: Floats
    reranked: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a method reached under one judgement.

    Attributes:
        judgement: name of the judgement.
        ap: (Q,) average precision of each query in [0, 1]; NaN for those without positives or whose picture is
            missing.
        recall: (Q,) share of a query's positives among the `depth` best by global vector; NaN likewise.
        rankings: of the queries that were asked.
    """

    judgement: str
    ap: Floats
    recall: Floats
    rankings: tuple[Ranking, ...]


@dataclass(frozen=True, slots=True)
class FirstStage:
    """Rankings by global vector alone, in places of the whole gallery.

    Attributes:
        ranked: for each query, best first; empty for a query whose picture is missing.
        cosines: in the same order.
    """

    ranked: tuple[Ids, ...]
    cosines: tuple[NDArray[np.float32], ...]


def first_stage(collection: Collection, settings: EvaluationSettings) -> FirstStage:
    """Rank the gallery by global vector for every query whose picture is there."""
    benchmark = collection.benchmark
    asked = [place for place, picture in enumerate(benchmark.queries) if picture in collection.keys]
    there = np.array([place for place, picture in enumerate(benchmark.gallery) if picture in collection.keys])
    ranked: list[Ids] = [np.empty(0, np.int64) for _ in benchmark.queries]
    cosines = [np.empty(0, np.float32) for _ in benchmark.queries]
    if asked and len(there):
        queries = collection.vectors([benchmark.queries[place] for place in asked])
        gallery = collection.vectors([benchmark.gallery[place] for place in there])
        found, values = nearest(queries, in_blocks(gallery), _length(collection, settings.depth))
        for place, ids, value in zip(asked, found, values, strict=True):
            ranked[place], cosines[place] = there[ids], value
    return FirstStage(tuple(ranked), tuple(cosines))


def _length(collection: Collection, depth: int) -> int:
    benchmark = collection.benchmark
    cutoff = benchmark.protocol.cutoff
    if cutoff is None or len(benchmark.gallery) <= WHOLE_RANKING:
        return len(benchmark.gallery)
    most_ignored = max((len(row) for each in benchmark.judgements for row in each.ignored), default=0)
    return max(depth, cutoff) + most_ignored


def evaluate(
    collection: Collection,
    start: FirstStage,
    model: Matcher | None,
    settings: EvaluationSettings,
    *,
    name: str = "",
    keep: tuple[Path, Mapping[str, Any]] | None = None,
    on_progress: OnProgress = no_progress,
) -> list[Outcome]:
    """Average precision of every query, one `Outcome` a judgement.

    Args:
        collection: the data set with its descriptors.
        start: what `first_stage` gave for it.
        model: re-ranks; None leaves the ranking by global vector.
        settings: depth and bounds.
        name: of the method, for progress.
        keep: a folder for the scores of single queries, with all that they depend on; a run with the same goes on
            where the last one stopped.
        on_progress: told after every query.
    """
    benchmark = collection.benchmark
    outcomes: list[Outcome] = []
    with ExitStack() as open_things:
        pictures: Pictures | None = None
        if model is not None:
            pictures = Pictures(collection, model.to(settings.device), settings)
            open_things.enter_context(pictures.prepared)
        for judgement in benchmark.judgements:
            kept = None
            if keep is not None and model is not None:
                folder, belongs_to = keep
                kept = open_things.enter_context(
                    KeptScores.of(folder, {"dataset": benchmark.name, "judgement": judgement.name, **belongs_to})
                )
            pace = Pace(f"{benchmark.name}: {name}", len(benchmark.queries), on_progress)
            rankings: list[Ranking] = []
            for query in range(len(benchmark.queries)):
                scored = pictures.queries_scored if pictures else -1
                if len(start.ranked[query]):
                    rankings.append(_rank(query, start, judgement, pictures, settings.depth, kept))
                if pictures and pictures.queries_scored == scored:
                    pace.skip()
                else:
                    pace.step()
            outcomes.append(_measure(judgement, benchmark.protocol, start, rankings, settings.depth))
    return outcomes


class Pictures:
    """Scores of a model for pairs of a collection's pictures."""

    def __init__(self, collection: Collection, model: Matcher, settings: EvaluationSettings) -> None:
        benchmark = collection.benchmark
        every: tuple[Picture, ...] = (*benchmark.gallery, *benchmark.queries)
        self._first_query = len(benchmark.gallery)
        self._model, self._step = model, settings.pairs
        self.queries_scored = 0
        keys = [collection.keys.get(picture, "") for picture in every]
        self.prepared = PreparedPictures(model, collection.cache, keys, settings.memory, settings.device)

    @torch.inference_mode()
    def scores(self, query: int, candidates: Ids) -> Floats:
        """(C,) of one query with gallery pictures."""
        one = self.prepared.batch([self._first_query + query])
        parts = [
            self._model.score(one, self.prepared.batch(candidates[at : at + self._step].tolist()))
            for at in range(0, len(candidates), self._step)
        ]
        self.queries_scored += 1
        return torch.cat(parts).double().cpu().numpy()


def _rank(
    query: int,
    start: FirstStage,
    judgement: Judgement,
    pictures: Pictures | None,
    depth: int,
    kept: KeptScores | None,
) -> Ranking:
    wanted = ~np.isin(start.ranked[query], judgement.ignored[query])
    ranked, cosines = start.ranked[query][wanted], start.cosines[query][wanted].astype(np.float64)
    if pictures is None or not len(ranked):
        return Ranking(query, ranked, cosines, 0)
    candidates = ranked[:depth]
    scores = kept.get(query, candidates) if kept else None
    if scores is None:
        scores = pictures.scores(query, candidates)
        if kept:
            kept.add(query, candidates, scores)
    tail = cosines[depth:]
    below = scores.min() + (tail - tail[0]) if len(tail) else tail
    ordered = np.concatenate([np.sort(scores)[::-1], below])
    return Ranking(query, metrics.rerank(ranked, scores), ordered, len(candidates))


def _measure(
    judgement: Judgement, protocol: Protocol, start: FirstStage, rankings: Sequence[Ranking], depth: int
) -> Outcome:
    ap = np.full(len(judgement.positives), np.nan)
    recall = ap.copy()
    for ranking in rankings:
        positives = judgement.positives[ranking.query]
        ap[ranking.query] = average_precision(protocol, ranking.ranked, positives)
        before = metrics.places(start.ranked[ranking.query], positives, judgement.ignored[ranking.query])
        recall[ranking.query] = metrics.share_found(before, len(positives), depth)
    return Outcome(judgement.name, ap, recall, tuple(rankings))


def average_precision(protocol: Protocol, ranked: Ids, positives: Ids) -> float:
    """AP of one query in the form that the protocol names; NaN without positives.

    Example:
        >>> from elvis.evaluation.datasets import DATASETS
        >>> average_precision(DATASETS["folder"].protocol, np.array([5, 2, 9]), np.array([2, 9]))
        0.5833333333333333
    """
    if protocol.metric == "ilias":
        if not len(positives):
            return float("nan")
        # Places instead of scores: strictly ordered, as the evaluator wants them.
        strictly = -np.arange(len(ranked), dtype=np.float64)
        return metrics.ilias_ap(np.isin(ranked, positives), strictly, len(positives), protocol.cutoff or 1000)
    found = metrics.places(ranked, positives)
    if protocol.metric == "trapezoidal":
        return metrics.trapezoidal_ap(found, len(positives))
    return metrics.rectangular_ap(found, len(positives), protocol.cutoff)
