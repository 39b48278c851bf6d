"""What a run learns from: pictures with labels, their rows of descriptors, and their neighbours."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from elvis.errors import TrainingError
from elvis.training.config import TrainConfig
from elvis.training.triplets import UNLABELLED, Flags, Floats, Ids, Neighbours


class DescriptorRows(Protocol):
    """Descriptors on disk, row by row; the feature store and the published files are read through this."""

    @property
    def dim(self) -> int:
        """D′, channels of a descriptor."""
        ...

    def vectors(self, row: int) -> NDArray[np.floating]:
        """(n, D′) descriptors of a row, strongest first, n ≥ 1."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """P pictures to train and validate on.

    Attributes:
        rows: their descriptors, and those of their views.
        labels: (P,) `UNLABELLED` for those that are right for nobody.
        views: (P, 1 + V) rows of each picture itself and of its augmented views.
        neighbours: by global vector, of each picture among all others.
        held_out: (P,) not trained on, but validated with.
        view_similarity: (P,) mean cosine of a picture's global vector with those of its views; 1 without views.
        view_neighbours: for validation without labels: of each picture's first view among all pictures, itself
            included; None where labels say what is right.
        names: of the pictures, for people.
        fingerprint: of all this; a run is only resumed with the same.
    """

    rows: DescriptorRows
    labels: Ids
    views: Ids
    neighbours: Neighbours
    held_out: Flags
    view_similarity: Floats
    names: Sequence[str]
    fingerprint: str
    view_neighbours: Neighbours | None = None

    def __post_init__(self) -> None:
        pictures = len(self.labels)
        for name in ("views", "held_out", "view_similarity", "names"):
            if len(getattr(self, name)) != pictures:
                raise ValueError(f"{name}: expected one a picture ({pictures}), got {len(getattr(self, name))}")


def hold_out(labels: Ids, share: float, seed: int) -> Flags:
    """(P,) which pictures are kept for validation: whole objects, or of unlabelled pictures the share itself.

    Only objects with two pictures or more are held out, at least two of them, and at least two are left to train on.

    Example:
        >>> hold_out(np.array([0, 0, 1, 1, 2, 2, 3, 3]), 0.5, seed=0).sum()
        np.int64(4)
    """
    if share == 0:
        return np.zeros(len(labels), bool)
    rng = np.random.default_rng((seed, _HOLD_OUT))
    if (labels == UNLABELLED).all():
        wanted = max(2, round(share * len(labels)))
        if wanted > len(labels) - 2:
            raise TrainingError(f"{len(labels)} pictures are too few to hold some out: add more, or set holdout to 0")
        held = np.zeros(len(labels), bool)
        held[rng.permutation(len(labels))[:wanted]] = True
        return held
    values, counts = np.unique(labels[labels != UNLABELLED], return_counts=True)
    objects = values[counts >= 2]
    wanted = max(2, round(share * len(objects)))
    if wanted > len(objects) - 2:
        raise TrainingError(
            f"{len(objects)} objects with two pictures or more are too few to hold {wanted} out and train on the "
            "rest: at least 4 are needed; add objects, or set holdout to 0 and train without validation"
        )
    return np.isin(labels, rng.permutation(objects)[:wanted])


_HOLD_OUT = 7001  # tells this draw from the others of the same seed


def examples_fingerprint(keys: Sequence[str], labels: Ids, held_out: Flags, config: TrainConfig) -> str:
    """SHA-256 of what is trained on."""
    digest = hashlib.sha256("\n".join(keys).encode())
    digest.update(labels.astype("<i8").tobytes() + held_out.tobytes())
    digest.update(repr((config.views, config.extraction)).encode())
    return digest.hexdigest()
