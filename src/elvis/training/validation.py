"""What a head is worth on objects that it was not trained on, beside the methods that need no training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from elvis.evaluation import metrics
from elvis.models import Chamfer, ChamferConfig, ChamferTransport, Matcher
from elvis.training.batches import stack
from elvis.training.config import TrainConfig
from elvis.training.examples import DescriptorRows, Examples
from elvis.training.triplets import UNLABELLED, Ids
from elvis.values import Descriptors

CUTOFF = 100
"""Of mAP@100, as for the label-based benchmarks."""
_STREAM = 7003
_PAIRS = 32  # candidates scored together
HELD_BYTES = 512 << 20
"""Of prepared descriptors that are held in memory during one validation."""


@dataclass(frozen=True, slots=True, eq=False)
class Questions:
    """Q queries with the pictures nearest to them by global vector, best first.

    Attributes:
        query_rows: (Q,) rows of descriptors.
        candidate_rows: (Q, L) the same of the candidates; −1 where there are fewer.
        right: (Q, L) whether a candidate shows the query's object.
        positives: (Q,) how many right pictures there are in all.
        rows: where the descriptors are.
    """

    query_rows: Ids
    candidate_rows: Ids
    right: NDArray[np.bool_]
    positives: Ids
    rows: DescriptorRows

    def __len__(self) -> int:
        return len(self.query_rows)


def shortlist_length(config: TrainConfig) -> int:
    """How many neighbours of each picture validation and mining need."""
    return max(config.neighbours, config.validation_depth, CUTOFF)


def questions(examples: Examples, config: TrainConfig) -> Questions | None:
    """Held-out pictures as queries against all pictures, themselves left out; None where nothing is held out.

    With labels the other pictures of the object are right. Without, an augmented view is the query and the picture
    that it was made of is right.
    """
    labels = examples.labels
    by_view = examples.view_neighbours is not None
    asked = np.flatnonzero(examples.held_out & (by_view | (labels != UNLABELLED)))
    if not len(asked):
        return None
    order = np.random.default_rng((config.data_seed, _STREAM)).permutation(len(asked))
    asked = np.sort(asked[order[: config.validation_queries]])
    near = examples.view_neighbours if examples.view_neighbours is not None else examples.neighbours
    candidates = near.ids[asked, : shortlist_length(config)]
    there = candidates >= 0
    if by_view:
        right = candidates == asked[:, None]
        positives = np.ones(len(asked), np.int64)
    else:
        right = there & (labels[candidates] == labels[asked, None])
        positives = np.array([(labels == labels[picture]).sum() - 1 for picture in asked])
    return Questions(
        examples.views[asked, 1 if by_view else 0],
        np.where(there, examples.views[np.maximum(candidates, 0), 0], -1),
        right,
        positives,
        examples.rows,
    )


@torch.no_grad()
def average_precisions(
    asked: Questions,
    model: Matcher | None,
    config: TrainConfig,
    *,
    device: str = "cpu",
    on_query: Callable[[], None] = lambda: None,
) -> NDArray[np.float64]:
    """(Q,) AP@100 in [0, 1]; `model` re-ranks the best `validation_depth`, None leaves the order of global vectors."""
    found = np.zeros(len(asked))
    prepared = None if model is None else _Prepared(asked.rows, model, config.validation_descriptors, device)
    for query in range(len(asked)):
        rows, right = asked.candidate_rows[query], asked.right[query]
        right = right[rows >= 0]
        rows = rows[rows >= 0]
        if prepared is not None and len(rows):
            scores = prepared.scores(int(asked.query_rows[query]), rows[: config.validation_depth])
            right = right[metrics.rerank(np.arange(len(rows)), scores)]
        found[query] = metrics.rectangular_ap(np.flatnonzero(right), int(asked.positives[query]), CUTOFF)
        on_query()
    return found


class _Prepared:
    """Pictures prepared by a model, in half precision as an index holds them; many of them only once."""

    def __init__(self, rows: DescriptorRows, model: Matcher, descriptors: int, device: str) -> None:
        self._rows, self._model, self._descriptors, self._device = rows, model, descriptors, device
        self._held: dict[int, Descriptors] = {}
        self._room = HELD_BYTES

    def scores(self, query: int, candidates: Ids) -> NDArray[np.float64]:
        """(C,) of one picture with others, all by their rows."""
        one = self._one(query)
        parts = [
            self._model.score(one, Descriptors.stack([self._one(int(row)) for row in candidates[at : at + _PAIRS]]))
            for at in range(0, len(candidates), _PAIRS)
        ]
        return torch.cat(parts).double().cpu().numpy()

    def _one(self, row: int) -> Descriptors:
        if row in self._held:
            return self._held[row]
        vectors = np.asarray(self._rows.vectors(row)[: self._descriptors], np.float32)
        prepared = self._model.prepare(stack([vectors]).to(self._device)).to(torch.float16)
        size = prepared.vectors.numel() * prepared.vectors.element_size()
        if size <= self._room:  # of a large collection the rest is prepared anew for each query
            self._held[row] = prepared
            self._room -= size
        return prepared


def hand_made_methods() -> dict[str, Matcher]:
    """What needs no training, by the names that `elvis bench` uses."""
    return {
        f"{name}@{form}": kind(ChamferConfig(standardise=form == "standardised")).eval()
        for name, kind in (("chamfer", Chamfer), ("chamfer-ot", ChamferTransport))
        for form in ("raw", "standardised")
    }
