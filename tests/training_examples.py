"""Pictures to train on without pictures: objects as sets of random descriptors, seen through noise."""

from __future__ import annotations

import numpy as np
import torch

from elvis.training.config import TrainConfig
from elvis.training.examples import Examples, hold_out
from elvis.training.triplets import UNLABELLED, nearest_neighbours

DIM = 16


class ArrayRows:
    """Descriptors in memory."""

    def __init__(self, rows):
        self.rows = rows
        self.dim = rows[0].shape[1]

    def vectors(self, row):
        return self.rows[row]


def tiny_config(**changes):
    """Trains in a second or two."""
    base = TrainConfig().changed(
        {
            "steps": 60,
            "triplets": 8,
            "min_positives": 1,
            "min_negatives": 1,
            "loss": "listwise",
            "descriptors": [8, 12],
            "descriptor_choice": "random",
            "lr": 1e-2,
            "projection_start": "whitened",
            "vote_start": "affine",
            "holdout": 0.3,
            "validate_every": 30,
            "validation_queries": 12,
            "validation_depth": 40,
            "checkpoint_every": 10,
            "head": {"dim": 16, "vote_layernorm": False, "calibrate": "affine", "rounds": 5},
        }
    )
    return base.changed(changes)


def toy_examples(*, objects=12, pictures=5, views=2, seed=0, labelled=True, config=None):
    """Each object has eight descriptors of its own, in half of the channels, and every picture some of clutter.

    The other channels are strong noise, so that raw matching is led astray and a projection that leaves them out is
    what there is to learn.
    """
    config = config or tiny_config()
    rng = np.random.default_rng(seed)
    half = DIM // 2
    rows, labels, view_rows, globals_ = [], [], [], []

    def photograph(things):
        shown = np.zeros((14, DIM), np.float32)
        shown[:8, :half] = things + 0.25 * rng.standard_normal(things.shape)
        shown[8:, :half] = rng.standard_normal((6, half))
        shown[:, half:] = 1.5 * rng.standard_normal((14, half))
        rows.append(shown.astype(np.float16))
        mean = np.concatenate([shown[:, :half].mean(axis=0) * 3, 0.3 * shown[0, half:]])
        globals_.append(mean / np.linalg.norm(mean))
        return len(rows) - 1

    for thing in range(objects):
        things = rng.standard_normal((8, half))
        for _ in range(pictures):
            labels.append(thing if labelled else UNLABELLED)
            view_rows.append([photograph(things) for _ in range(1 + views)])
    labels, view_rows = np.array(labels), np.array(view_rows)
    vectors = np.array(globals_, np.float32)
    own = vectors[view_rows[:, 0]]
    near_view = None
    if not labelled:
        from elvis.training.triplets import Neighbours

        order = np.argsort(-(vectors[view_rows[:, 1]] @ own.T), axis=1, kind="stable")
        near_view = Neighbours(order, np.ones(order.shape, np.float32))
    return Examples(
        rows=ArrayRows(rows),
        labels=labels,
        views=view_rows,
        neighbours=nearest_neighbours(own, 300),
        held_out=hold_out(labels, config.holdout, config.data_seed),
        view_similarity=np.einsum("pd,pvd->pv", own, vectors[view_rows[:, 1:]]).mean(axis=1)
        if views
        else np.ones(len(own)),
        names=[f"{i}.jpg" for i in range(len(labels))],
        fingerprint=f"toys {objects} {pictures} {views} {seed} {labelled}",
        view_neighbours=near_view,
    )


def same_weights(one, other):
    """Bit for bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
