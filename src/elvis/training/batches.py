"""The batch of a step: a function of the examples, the recipe and the number of the step alone.

So a resumed run meets the same batches as an uninterrupted one, and several processes can each compute their part of
the same batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elvis.errors import TrainingError
from elvis.training.config import TrainConfig
from elvis.training.examples import DescriptorRows, Examples
from elvis.training.triplets import UNLABELLED, AnchorStream, Ids, TripletMiner
from elvis.values import Descriptors

# One number a stream of random numbers, so that no two of them ever meet.
_LABELLED, _AUGMENTED, _DRAW, _LENGTH, _COMPANY, _PICTURE = range(6)


@dataclass(frozen=True, slots=True, eq=False)
class Triplets:
    """T anchors with a right and a wrong picture each.

    Attributes:
        pictures: (T, 3) places of anchor, positive and negative among the examples.
        rows: (T, 3) the rows of descriptors that stand for them.
    """

    pictures: Ids
    rows: Ids


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The part of a step's batch that one process computes: some anchors, each with C candidates.

    Attributes:
        anchors: descriptors of A anchors.
        others: descriptors of all candidates, each once.
        candidates: (A, C) places among `others`; the first is the right one.
        real: (A, C) bool: where a batch has too few pictures of other objects, candidates are missing.
        total: number of anchors of all processes together.
    """

    anchors: Descriptors
    others: Descriptors
    candidates: Tensor
    real: Tensor
    total: int


class BatchMaker:
    """Makes the batch of any step.

    Args:
        examples: what is trained on.
        config: the recipe.
        rank: which process this is.
        world: of how many.

    Attributes:
        steps: of the whole run.
        epoch_steps: of one pass over the valid anchors.
        anchors: how many are valid.
    """

    def __init__(self, examples: Examples, config: TrainConfig, *, rank: int = 0, world: int = 1) -> None:
        self._examples, self._config, self._rank, self._world = examples, config, rank, world
        trained = ~examples.held_out
        self._miner = TripletMiner(
            np.where(trained, examples.labels, UNLABELLED),
            examples.neighbours.among(trained),
            depth=config.neighbours,
            min_positives=config.min_positives,
            min_negatives=config.min_negatives,
            sharpness=config.sharpness,
        )
        self.anchors = len(self._miner.anchors)
        self._augmented = round(config.augmented_share * config.triplets)
        self._labelled = config.triplets - self._augmented
        if self._labelled and not self.anchors:
            raise TrainingError(self._no_anchors())
        self._stream = AnchorStream(self._miner.anchors, (config.seed, _LABELLED)) if self._labelled else None
        pictures = np.flatnonzero(trained)
        self._view_stream = AnchorStream(pictures, (config.seed, _AUGMENTED)) if self._augmented else None
        lead = (self._stream, self._labelled) if self._stream else (self._view_stream, self._augmented)
        self._lead = lead[0]
        self.epoch_steps = -(-len(lead[0] or ()) // lead[1])
        self.steps = config.steps if config.steps is not None else (config.epochs or 0) * self.epoch_steps

    def _no_anchors(self) -> str:
        config = self._config
        return (
            f"no picture has {config.min_positives} others of its object and {config.min_negatives} of other objects "
            f"among its {config.neighbours} nearest: add pictures, or lower min_positives and min_negatives "
            "(the preset small asks for one of each)"
        )

    def triplets(self, step: int) -> Triplets:
        """Who meets whom at a step, over all processes together."""
        rng = np.random.default_rng((self._config.seed, _DRAW, step))
        found = [self._labelled_triplet(int(anchor), rng) for anchor in self._taken(self._stream, self._labelled, step)]
        for picture in self._taken(self._view_stream, self._augmented, step):
            if (triplet := self._view_triplet(int(picture), rng)) is not None:
                found.append(triplet)
        if not found:
            raise TrainingError("not one picture of this step has another one to be told apart from: add pictures")
        both = np.array(found, np.int64)
        return Triplets(both[:, 0], both[:, 1])

    def _taken(self, stream: AnchorStream | None, share: int, step: int) -> Ids:
        if stream is None:
            return np.empty(0, np.int64)
        if self._config.epochs is None or stream is not self._lead:
            return stream.take(step * share, share)
        # Every anchor once an epoch: the last batch of an epoch is as large as it comes out.
        epoch, batch = divmod(step, self.epoch_steps)
        start = batch * share
        return stream.take(epoch * len(stream) + start, min(share, len(stream) - start))

    def _labelled_triplet(self, anchor: int, rng: np.random.Generator) -> tuple[list[int], list[int]]:
        pictures = [anchor, *self._miner.draw(anchor, rng)]
        return pictures, [int(self._examples.views[picture, 0]) for picture in pictures]

    def _view_triplet(self, picture: int, rng: np.random.Generator) -> tuple[list[int], list[int]] | None:
        """Two different views of a picture, and a neighbour that is another thing, in any view."""
        examples = self._examples
        # A neighbour as alike as the picture's own views are may be the same thing, where no label says otherwise.
        ceiling = float(examples.view_similarity[picture]) if examples.labels[picture] == UNLABELLED else np.inf
        wrong = self._miner.draw_wrong(picture, rng, ceiling)
        if wrong is None:
            return None
        one, other = rng.permutation(examples.views.shape[1])[:2]
        third = rng.integers(examples.views.shape[1])
        rows = [examples.views[picture, one], examples.views[picture, other], examples.views[wrong, third]]
        return [picture, picture, wrong], [int(row) for row in rows]

    def batch(self, step: int) -> Batch:
        """Descriptors of this process's part of a step."""
        config, triplets = self._config, self.triplets(step)
        count = len(triplets.rows)
        slots, real = self._candidates(triplets, step)
        mine = np.arange(count)[self._rank :: self._world]
        # Every process needs an anchor, or it would have no gradient to share: a small rest is counted with weight 0.
        if not len(mine):
            mine = np.array([0])
            real = real & False
        used, candidates = np.unique(slots[mine], return_inverse=True)
        lengths = np.random.default_rng((config.seed, _LENGTH, step)).integers(
            config.descriptors[0], config.descriptors[1], size=2, endpoint=True
        )
        rows = triplets.rows
        anchors = [self._picture(int(rows[i, 0]), int(lengths[0]), (step, int(i), 0)) for i in mine]
        others = [
            self._picture(int(rows[s // 2, 1 + s % 2]), int(lengths[1]), (step, int(s // 2), 1 + s % 2)) for s in used
        ]
        return Batch(
            stack(anchors),
            stack(others),
            torch.from_numpy(candidates.reshape(len(mine), -1)),
            torch.from_numpy(real[mine]),
            count,
        )

    def _candidates(self, triplets: Triplets, step: int) -> tuple[Ids, NDArray[np.bool_]]:
        """(T, C) slots: 2·t is the positive of triplet t, 2·t + 1 its negative; and which of them are real."""
        count = len(triplets.rows)
        own = np.stack([2 * np.arange(count), 2 * np.arange(count) + 1], axis=1)
        wanted = self._config.batch_negatives if self._config.loss == "listwise" else 0
        slots = np.concatenate([own, np.zeros((count, wanted), np.int64)], axis=1)
        real = np.ones(slots.shape, bool)
        if not wanted:
            return slots, real
        rng = np.random.default_rng((self._config.seed, _COMPANY, step))
        pictures = triplets.pictures[:, 1:].ravel()
        labels = self._examples.labels[pictures]
        for i in range(count):
            anchor = triplets.pictures[i, 0]
            label = self._examples.labels[anchor]
            other = (pictures != anchor) & ((labels != label) | (label == UNLABELLED))
            other[2 * i : 2 * i + 2] = False
            chosen = rng.permutation(np.flatnonzero(other))[:wanted]
            slots[i, 2 : 2 + len(chosen)] = chosen
            real[i, 2 + len(chosen) :] = False
        slots[~real] = np.broadcast_to(own[:, :1], slots.shape)[~real]
        return slots, real

    def _picture(self, row: int, length: int, place: tuple[int, int, int]) -> NDArray[np.float32]:
        config = self._config
        rng = np.random.default_rng((config.seed, _PICTURE, *(int(part) for part in place)))
        return some_descriptors(
            self._examples.rows,
            int(row),
            length,
            rng if config.descriptor_choice == "random" else None,
            jitter=config.style_jitter if rng.random() < config.style_share else 0.0,
            jitter_rng=rng,
        )

    def from_step(self, step: int) -> Iterator[Batch]:
        """The batches from a step on to the end; the next one is read while the current one is used."""
        with ThreadPoolExecutor(1, "elvis-batches") as worker:
            ahead = worker.submit(self.batch, step) if step < self.steps else None
            while ahead is not None:
                batch = ahead.result()
                step += 1
                ahead = worker.submit(self.batch, step) if step < self.steps else None
                yield batch


def some_descriptors(
    rows: DescriptorRows,
    row: int,
    length: int,
    choice: np.random.Generator | None,
    *,
    jitter: float,
    jitter_rng: np.random.Generator,
) -> NDArray[np.float32]:
    """(≤ length, D′) descriptors of a row, the strongest or by chance, in another style where `jitter` is above 0."""
    every = rows.vectors(row)
    if choice is not None and len(every) > length:
        vectors = every[np.sort(choice.permutation(len(every))[:length])].astype(np.float32)
    else:
        vectors = every[:length].astype(np.float32)
    return restyled(vectors, jitter, jitter_rng) if jitter > 0 else vectors


def restyled(vectors: NDArray[np.float32], strength: float, rng: np.random.Generator) -> NDArray[np.float32]:
    """Descriptors as if season, light and camera were others: what those change, they change in all descriptors alike.

    Args:
        vectors: (n, D) of one picture.
        strength: k; each channel is multiplied by exp(k·N(0,1)), and k·deviation·N(0,1) is added to it.
        rng: draws one pair of numbers a channel.

    Example:
        >>> restyled(np.ones((2, 3), np.float32), 0.0, np.random.default_rng(0)).tolist()
        [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    """
    factor = np.exp(strength * rng.standard_normal(vectors.shape[1])).astype(np.float32)
    offset = (strength * rng.standard_normal(vectors.shape[1])).astype(np.float32) * vectors.std(axis=0)
    return vectors * factor + offset


def stack(pictures: list[NDArray[np.float32]]) -> Descriptors:
    """One batch of pictures with their own numbers of descriptors, padded to the longest."""
    longest = max(len(each) for each in pictures)
    vectors = np.zeros((len(pictures), longest, pictures[0].shape[1]), np.float32)
    for place, each in enumerate(pictures):
        vectors[place, : len(each)] = each
    counts = torch.tensor([len(each) for each in pictures])
    return Descriptors(torch.from_numpy(vectors), torch.arange(longest) < counts[:, None])
