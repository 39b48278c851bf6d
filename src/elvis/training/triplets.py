"""The miner: which pictures are compared in training.

An anchor, a right picture and a wrong one, the latter two among the anchor's nearest neighbours by global vector, so
that what is compared is hard. Everything drawn follows from the seed and the place in the run alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]

UNLABELLED = -1
"""Label of a picture that is right for nobody: a distractor, or any picture where there are no labels."""

_CHUNK = 4096  # rows looked at together, so that masks over a large training set stay small


@dataclass(frozen=True, slots=True, eq=False)
class Neighbours:
    """The nearest pictures of each picture by global vector, without itself, best first.

    Attributes:
        ids: (P, K) places of pictures; −1 where there are fewer.
        similarities: (P, K) cosines; 0 where there are fewer.
    """

    ids: Ids
    similarities: Floats

    def __post_init__(self) -> None:
        if self.ids.ndim != 2 or self.ids.shape != self.similarities.shape:
            raise ValueError(
                f"ids and similarities: expected equal shapes (P, K), got {self.ids.shape} and "
                f"{self.similarities.shape}"
            )

    def among(self, allowed: Flags) -> Neighbours:
        """Only those neighbours that are allowed; the others' similarity becomes 0, so that nobody draws them."""
        keep = (self.ids >= 0) & allowed[np.maximum(self.ids, 0)]
        return Neighbours(np.where(keep, self.ids, -1), np.where(keep, self.similarities, 0))


def nearest_neighbours(vectors: Floats, count: int) -> Neighbours:
    """Exact neighbours of every picture among all others, in bounded memory; equal ones in order.

    Args:
        vectors: (P, G) unit vectors.
        count: K.

    Example:
        >>> nearest_neighbours(np.array([[1, 0], [0, 1], [0.6, 0.8]], np.float32), 1).ids[:, 0].tolist()
        [2, 2, 1]
    """
    pictures = len(vectors)
    count = min(count, pictures - 1)
    ids = np.full((pictures, max(count, 0)), -1, np.int64)
    similarities = np.zeros(ids.shape, np.float32)
    if count < 1:
        return Neighbours(ids, similarities)
    step = max(1, (1 << 24) // pictures)
    for start in range(0, pictures, step):
        rows = np.arange(start, min(start + step, pictures))
        found = vectors[rows] @ vectors.T
        found[np.arange(len(rows)), rows] = -np.inf
        best = np.argsort(-found, axis=1, kind="stable")[:, :count]
        ids[rows] = best
        similarities[rows] = np.take_along_axis(found, best, axis=1)
    return Neighbours(ids, similarities)


class TripletMiner:
    """Draws a right and a wrong picture for valid anchors.

    An anchor is valid when, among its nearest neighbours with similarity above 0, at least `min_positives` have its
    label and at least `min_negatives` have another. One of each is drawn with probability proportional to
    similarity to the power `sharpness`.

    Args:
        labels: (P,) of each picture; `UNLABELLED` ones are nobody's positive and no anchors.
        neighbours: of each picture; only the first `depth` count.
        depth: published: 300.
        min_positives: published: 5. On small data 1 is enough: fewer views of an object, less variety, no other harm.
        min_negatives: published: 5.
        sharpness: published: 3.

    Example:
        >>> labels = np.array([0, 0, 1, 1])
        >>> vectors = np.array([[1, 0], [0.9, 0.436], [0.8, 0.6], [0.6, 0.8]], np.float32)
        >>> miner = TripletMiner(labels, nearest_neighbours(vectors, 3), min_positives=1, min_negatives=1)
        >>> miner.anchors.tolist(), miner.draw(3, np.random.default_rng(0))[0]
        ([0, 1, 2, 3], 2)
    """

    def __init__(
        self,
        labels: Ids,
        neighbours: Neighbours,
        *,
        depth: int = 300,
        min_positives: int = 5,
        min_negatives: int = 5,
        sharpness: float = 3.0,
    ) -> None:
        if len(labels) != len(neighbours.ids):
            raise ValueError(f"labels: expected one a picture ({len(neighbours.ids)}), got {len(labels)}")
        self._labels, self._sharpness = labels, sharpness
        self._ids, self._similarities = neighbours.ids[:, :depth], neighbours.similarities[:, :depth]
        valid = np.zeros(len(labels), bool)
        for start in range(0, len(labels), _CHUNK):
            rows = slice(start, start + _CHUNK)
            near = (self._similarities[rows] > 0) & (self._ids[rows] >= 0)
            same = labels[self._ids[rows]] == labels[rows, None]
            right, wrong = (near & same).sum(axis=1), (near & ~same).sum(axis=1)
            valid[rows] = (right >= min_positives) & (wrong >= min_negatives) & (labels[rows] != UNLABELLED)
        self.anchors: Ids = np.flatnonzero(valid)

    def draw(self, anchor: int, rng: np.random.Generator) -> tuple[int, int]:
        """A right and a wrong picture for a valid anchor."""
        ids, similarities = self._near(anchor)
        same = self._labels[ids] == self._labels[anchor]
        return self._one(ids[same], similarities[same], rng), self._one(ids[~same], similarities[~same], rng)

    def draw_wrong(self, picture: int, rng: np.random.Generator, ceiling: float = np.inf) -> int | None:
        """A wrong picture for any picture, less similar than `ceiling`; None where there is none.

        Without a label of its own all neighbours count as wrong; the ceiling keeps out those that may be the same
        thing. Where it would keep out all of them, the less similar half is left.
        """
        ids, similarities = self._near(picture)
        label = self._labels[picture]
        wrong = (label == UNLABELLED) | (self._labels[ids] != label)
        below = wrong & (similarities < ceiling)
        if wrong.any() and not below.any():
            below = wrong & (similarities <= np.median(similarities[wrong]))
        wrong = below
        return self._one(ids[wrong], similarities[wrong], rng) if wrong.any() else None

    def _near(self, picture: int) -> tuple[Ids, Floats]:
        near = (self._similarities[picture] > 0) & (self._ids[picture] >= 0)
        return self._ids[picture][near], self._similarities[picture][near]

    def _one(self, ids: Ids, similarities: Floats, rng: np.random.Generator) -> int:
        weight = similarities.astype(np.float64) ** self._sharpness
        return int(ids[rng.choice(len(ids), p=weight / weight.sum())])


class AnchorStream:
    """An endless, reproducible order of anchors: every epoch a new permutation of all of them.

    Args:
        anchors: (A,) what is permuted; at least one.
        seed: of the permutations, with anything that tells streams apart.

    Example:
        >>> stream = AnchorStream(np.arange(3), (0, 1))
        >>> sorted(stream.take(3, 3).tolist())
        [0, 1, 2]
    """

    def __init__(self, anchors: Ids, seed: tuple[int, ...]) -> None:
        if not len(anchors):
            raise ValueError("anchors: expected at least one, got none")
        self._anchors = anchors
        self._order = lru_cache(maxsize=2)(
            lambda epoch: np.random.default_rng((*seed, epoch)).permutation(anchors)  # pyright: ignore[reportUnknownLambdaType]
        )

    def __len__(self) -> int:
        return len(self._anchors)

    def take(self, position: int, count: int) -> Ids:
        """`count` anchors from this position of the stream on, across the ends of epochs."""
        places = np.arange(position, position + count)
        epochs = places // len(self._anchors)
        return np.array(
            [self._order(int(epoch))[place % len(self._anchors)] for epoch, place in zip(epochs, places, strict=True)],
            np.int64,
        )
