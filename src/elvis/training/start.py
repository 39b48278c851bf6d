"""Where a head starts: the published way, or from the statistics of the training descriptors."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from elvis.models.base import standardised
from elvis.models.elvis import Elvis
from elvis.training.batches import stack
from elvis.training.config import TrainConfig
from elvis.training.examples import Examples

_SAMPLED_PICTURES = 400
_SAMPLED_DESCRIPTORS = 100
_STREAM = 7002


def new_head(examples: Examples, config: TrainConfig) -> Elvis:
    """A head before its first step; the same seed gives the same one."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        head = Elvis(config.head_config(examples.rows.dim))
    if config.vote_start == "affine":
        start_affine(head, config.seed)
    if config.projection_start == "whitened":
        start_whitened(head, examples, config.seed)
    return head


@torch.no_grad()
def start_affine(head: Elvis, seed: int = 0, slope: float = 5.0, middle: float = 0.4) -> None:
    """Lets f begin as sigmoid(slope·(t − middle)), exactly, with hidden units that can bend it anywhere in [0, 1].

    GELU(x) − GELU(−x) = x, so pairs of units of opposite sign add up to a straight line.

    Example:
        >>> from elvis import Descriptors
        >>> from elvis.models import ElvisConfig
        >>> head = Elvis(ElvisConfig(input_dim=4, dim=4, vote_layernorm=False))
        >>> start_affine(head)
        >>> [round(v, 3) for v in head.vote(torch.tensor([0.0, 0.4, 1.0])).tolist()]
        [0.119, 0.5, 0.953]
    """
    if head.vote_function is None or head.config.vote_layernorm:
        raise ValueError("vote_start: affine needs a head with a vote and without vote_layernorm")
    first, last = head.vote_function[0], head.vote_function[-2]  # type: ignore[index]
    assert isinstance(first, nn.Linear)
    assert isinstance(last, nn.Linear)
    rng = np.random.default_rng((seed, _STREAM, 1))
    pairs = first.out_features // 2
    weight = rng.uniform(2, 8, pairs)
    bias = -weight * (np.arange(pairs) + 0.5) / pairs  # each pair bends at its own t
    # Smallest outputs whose sum is the line: slope·t − slope·middle.
    out = np.linalg.pinv(np.stack([weight, bias])) @ np.array([slope, -slope * middle])
    for value, target in (
        (np.concatenate([weight, -weight])[:, None], first.weight),
        (np.concatenate([bias, -bias]), first.bias),
        (np.concatenate([out, -out])[None], last.weight),
    ):
        target.copy_(torch.from_numpy(value))
    last.bias.zero_()


@torch.no_grad()
def start_whitened(head: Elvis, examples: Examples, seed: int = 0) -> None:
    """Lets the projection begin as whitened principal components: W = Uᵀ/√(λ + 0.1·mean λ), bias −Wμ."""
    if head.projection is None:
        raise ValueError("projection_start: whitened needs a head with a projection")
    linear = head.projection[0]
    assert isinstance(linear, nn.Linear)
    if linear.out_features > linear.in_features:
        raise ValueError(
            f"projection_start: whitened needs dim of at most {linear.in_features} channels, got {linear.out_features}"
        )
    rng = np.random.default_rng((seed, _STREAM, 0))
    pictures = rng.permutation(np.flatnonzero(~examples.held_out))[:_SAMPLED_PICTURES]
    samples: list[np.ndarray] = []
    for picture in pictures:
        every = examples.rows.vectors(int(examples.views[picture, 0]))
        one = stack([np.asarray(every, np.float32)])
        if head.config.standardise:
            one = standardised(one)
        chosen = rng.permutation(len(every))[:_SAMPLED_DESCRIPTORS]
        samples.append(one.vectors[0].numpy()[chosen].astype(np.float64))
    x = np.concatenate(samples)
    mean = x.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov(x - mean, rowvar=False, bias=True).reshape(x.shape[1], x.shape[1]))
    order = np.argsort(-values)[: linear.out_features]
    values, floor = np.maximum(values, 0), max(0.1 * float(values.mean()), np.finfo(np.float32).tiny)
    weight = (vectors[:, order] / np.sqrt(values[order] + floor)).T
    linear.weight.copy_(torch.from_numpy(weight))
    linear.bias.copy_(torch.from_numpy(-weight @ mean))
