"""From a query picture to ranked hits: nearest by global vector, then the method on the best of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from elvis.boxes import match_boxes
from elvis.extract import ExtractionSettings, Extractor
from elvis.images import Crop, open_image
from elvis.models import Matcher
from elvis.ranking import IndexRanking
from elvis.store import Index, Neighbour
from elvis.values import Descriptors, Explanation, Hit

logger = logging.getLogger(__name__)

Query = str | Path | Image.Image
FETCH_BLOCK = 100
"""Candidates held in memory at once: 46 MB of the largest descriptors that we store."""


@dataclass(slots=True)
class Seconds:
    """Where the time of a search went."""

    extraction: float = 0.0
    nearest: float = 0.0
    fetch: float = 0.0
    matching: float = 0.0
    boxes: float = 0.0


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The answer to one query; iterating gives its hits.

    Attributes:
        hits: best first.
        method: what ranked them.
        candidates: how many pictures the method looked at.
        seconds: where the time went.
        damaged: candidates that could not be read or trusted, with reasons; they are in no ranking.
    """

    hits: list[Hit]
    method: str
    candidates: int
    seconds: Seconds
    damaged: list[str] = field(default_factory=list[str])

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)

    def __getitem__(self, place: int) -> Hit:
        return self.hits[place]


@dataclass(slots=True)
class _Candidates:
    """Those that the first stage proposes, and what the method says of them."""

    neighbours: dict[int, Neighbour]  # by row id, nearest first
    scores: dict[int, float]
    kept: dict[int, Descriptors] = field(default_factory=dict[int, Descriptors])
    damaged: dict[int, str] = field(default_factory=dict[int, str])

    def ranked(self) -> list[int]:
        place = {row: number for number, row in enumerate(self.neighbours)}
        return sorted(self.scores, key=lambda row: (-self.scores[row], place[row]))


class Searcher:
    """Searches an index; loads the backbone and the model once.

    Args:
        index: open for reading or writing.
        method: `global`, `chamfer`, `chamfer-ot` or `elvis`; None: what the index was made for.
        head: folder or hub name of a trained head, for `elvis`.
        depth: how many of the nearest by global vector the method re-ranks.
        device: where backbone and model compute.
        extractor: one that is loaded already; it must fit the index.

    Raises:
        IndexMismatch: the index was made with another backbone, or cannot serve the method.
    """

    def __init__(
        self,
        index: Index,
        *,
        method: str | None = None,
        head: str | Path | None = None,
        depth: int = 400,
        device: str = "cpu",
        extractor: Extractor | None = None,
    ) -> None:
        if depth < 1:
            raise ValueError(f"depth: expected at least 1, got {depth}")
        self.index = index
        self.depth = depth
        self._ranking = IndexRanking(index, method, head, device=device)
        self._extractor = extractor or Extractor(ExtractionSettings.from_dict(index.card.extraction), device=device)
        index.card.check_extraction(self._extractor.fingerprint, self._extractor.settings.to_dict(), str(index.folder))

    @property
    def method(self) -> str:
        """The method that ranks."""
        return self._ranking.method

    @property
    def model(self) -> Matcher | None:
        """The model that ranks; None for `global`."""
        return self._ranking.model

    @property
    def engine(self) -> str:
        """What runs the backbone, and in which precision."""
        return f"{self._extractor.engine}, {self._extractor.precision.partition(' ')[0]}"

    def describe(self, query: Query, crop: Crop | None = None) -> Descriptors:
        """Descriptors of one query picture as the extractor gives them."""
        picture = query if isinstance(query, Image.Image) else open_image(Path(query))
        return next(self._extractor.extract([(picture, crop)]))

    def search(
        self,
        query: Query | Sequence[Query],
        *,
        top: int = 10,
        crop: Crop | None = None,
        where: str | None = None,
        min_score: float | None = None,
        boxes: bool = True,
    ) -> SearchResult:
        """The pictures that show the same thing, best first.

        Args:
            query: a picture, or several pictures of one object: a candidate then counts by the view that it matches
                best.
            top: how many hits at most.
            crop: x, y, width, height of the object in the (single) query, as fractions of the upright picture.
            where: SQL filter over the metadata, as "museum = 'X'".
            min_score: hits below are left out.
            boxes: find where the match lies in both pictures.
        """
        if top < 1:
            raise ValueError(f"top: expected at least 1, got {top}")
        views = [query] if isinstance(query, str | Path | Image.Image) else list(query)
        if not views:
            raise ValueError("query: expected at least one picture, got none")
        if crop is not None and len(views) > 1:
            raise ValueError("crop: expected a single query picture, got several")
        seconds = Seconds()
        start = time.perf_counter()
        described = [self.describe(view, crop) for view in views]
        seconds.extraction = time.perf_counter() - start
        return self.search_described(described, top=top, where=where, min_score=min_score, boxes=boxes, seconds=seconds)

    def search_described(
        self,
        views: Sequence[Descriptors],
        *,
        top: int = 10,
        where: str | None = None,
        min_score: float | None = None,
        boxes: bool = True,
        seconds: Seconds | None = None,
    ) -> SearchResult:
        """`search` with what `describe` gave."""
        seconds = seconds or Seconds()
        start = time.perf_counter()
        candidates = self._nearest(views, max(top, self.depth), where)
        seconds.nearest = time.perf_counter() - start
        model = self._ranking.model
        prepared: list[Descriptors] = []
        if model is not None and candidates.neighbours:
            with torch.inference_mode():
                prepared = [model.prepare(view) for view in views]
            self._match(model, prepared, candidates, top if boxes else 0, seconds)
        start = time.perf_counter()
        hits = self._hits(candidates, prepared, top, min_score, boxes)
        seconds.boxes = time.perf_counter() - start
        for reason in candidates.damaged.values():
            logger.warning("left out: %s", reason)
        return SearchResult(hits, self.method, len(candidates.neighbours), seconds, sorted(candidates.damaged.values()))

    def explain(self, query: Query | Descriptors, path: str, crop: Crop | None = None) -> Explanation:
        """Why an indexed picture scored what it did.

        Args:
            query: a picture, or what `describe` gave.
            path: of the indexed picture, as a hit names it.
            crop: as in `search`.
        """
        model = self._ranking.model
        if model is None:
            raise ValueError("explain: expected a method that matches descriptors, got global")
        view = query if isinstance(query, Descriptors) else self.describe(query, crop)
        with torch.inference_mode():
            found = self.index.descriptors([path], raw=self._ranking.from_raw).to(view.vectors.device)
            ready = model.prepare(found) if self._ranking.from_raw else found
            return model.explain_prepared(model.prepare(view), ready)

    def _nearest(self, views: Sequence[Descriptors], count: int, where: str | None) -> _Candidates:
        """The nearest by global vector; of several views each picture counts by the view it is nearest to."""
        best: dict[int, Neighbour] = {}
        for view in views:
            assert view.image_vector is not None  # the extractor always gives one
            for neighbour in self.index.nearest(view.image_vector[0].float().cpu(), count, where):
                known = best.get(neighbour.row_id)
                if known is None or known.similarity < neighbour.similarity:
                    best[neighbour.row_id] = neighbour
        order = sorted(best.values(), key=lambda neighbour: (-neighbour.similarity, neighbour.path))[:count]
        return _Candidates(
            {neighbour.row_id: neighbour for neighbour in order},
            {neighbour.row_id: neighbour.similarity for neighbour in order},
        )

    def _match(
        self, model: Matcher, views: Sequence[Descriptors], candidates: _Candidates, keep: int, seconds: Seconds
    ) -> None:
        """Replaces the scores by the model's; keeps the descriptors of the best few for their boxes."""
        candidates.scores.clear()
        rows = list(candidates.neighbours)
        for start in range(0, len(rows), FETCH_BLOCK):
            clock = time.perf_counter()
            fetched = self.index.fetch(rows[start : start + FETCH_BLOCK], raw=self._ranking.from_raw, dtype=None)
            seconds.fetch += time.perf_counter() - clock
            candidates.damaged.update(fetched.damaged)
            if fetched.descriptors is None:
                continue
            clock = time.perf_counter()
            with torch.inference_mode():
                gallery = fetched.descriptors.to(views[0].vectors.device)
                if self._ranking.from_raw:
                    gallery = model.prepare(gallery)
                scores = torch.stack([model.score(view, gallery) for view in views]).amax(0)
            self._keep_best(candidates, fetched.row_ids, scores, gallery, keep)
            seconds.matching += time.perf_counter() - clock

    @staticmethod
    def _keep_best(candidates: _Candidates, rows: list[int], scores: Tensor, gallery: Descriptors, keep: int) -> None:
        candidates.scores.update(zip(rows, scores.tolist(), strict=True))
        best = set(candidates.ranked()[:keep])
        for place, row in enumerate(rows):
            if row in best:
                candidates.kept[row] = gallery.select(place)
        for row in candidates.kept.keys() - best:
            del candidates.kept[row]

    def _hits(
        self,
        candidates: _Candidates,
        prepared: Sequence[Descriptors],
        top: int,
        min_score: float | None,
        boxes: bool,
    ) -> list[Hit]:
        rank_before = {row: number for number, row in enumerate(candidates.neighbours, 1)}
        rows = [row for row in candidates.ranked()[:top] if min_score is None or candidates.scores[row] >= min_score]
        hits: list[Hit] = []
        for rank, (row, metadata) in enumerate(zip(rows, self.index.metadata(rows), strict=True), 1):
            box = query_box = None
            if boxes and row in candidates.kept:
                box, query_box = self._boxes(prepared, candidates.kept[row])
            hits.append(
                Hit(
                    path=candidates.neighbours[row].path,
                    rank=rank,
                    score=candidates.scores[row],
                    rank_before=rank_before[row],
                    global_similarity=candidates.neighbours[row].similarity,
                    box=box,
                    query_box=query_box,
                    metadata=metadata,
                )
            )
        return hits

    def _boxes(self, views: Sequence[Descriptors], found: Descriptors) -> tuple[Crop | None, Crop | None]:
        """Boxes from the view that matches best."""
        model = self._ranking.model
        assert model is not None  # descriptors are kept only where a model ranks
        explanations = [model.explain_prepared(view, found) for view in views]
        return match_boxes(max(explanations, key=lambda explanation: float(explanation.score)))
