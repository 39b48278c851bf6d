"""Optimal transport between two sets of descriptors: one definition, one door, several ways to compute it.

`reference.py` is the truth (log domain, gradients), `scaling.py` the same in plain matrix–vector products,
`gradient.py` that with its derivatives for training, `cpu/` and `gpu.py` fused kernels for searching. `sinkhorn`
refines a similarity matrix; `strengths` goes from descriptors to the strongest match of each, which is all that
searching and training need.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from elvis.transport import gradient, reference, scaling
from elvis.transport.similarity import blocks, check_pair, cosines, with_length
from elvis.values import Descriptors

logger = logging.getLogger(__name__)

KERNELS = {"cpu": "elvis.transport.cpu", "cuda": "elvis.transport.gpu"}
"""Device → module of its fused kernel, imported when it is needed; other devices use the scalings."""
KERNEL_TEMPERATURE = 0.05
"""Smallest λ that the kernels' number formats hold."""
SAFE_EXPONENT = 30.0
"""exp(±30) and the products of two such numbers fit in float32: beyond it the log domain is used."""


class Plan(Protocol):
    """What transport returns; each property is computed when asked for."""

    @property
    def plan(self) -> Tensor:
        """(B, M, N) refined similarities in [0, 1]; 0 at padding."""
        ...

    @property
    def row_max(self) -> Tensor:
        """(B, M) strongest entry of each row; 0 at padding."""
        ...

    @property
    def column_max(self) -> Tensor:
        """(B, N) strongest entry of each column; 0 at padding."""
        ...


class Strengths(NamedTuple):
    """Strongest match of every descriptor: (B, M) for the query's, (B, N) for the gallery's; 0 at padding."""

    query: Tensor
    gallery: Tensor


def sinkhorn(
    similarity: Tensor,
    query_gain: Tensor | None = None,
    gallery_gain: Tensor | None = None,
    corner: Tensor | float = 1.0,
    *,
    temperature: Tensor | float = 0.1,
    rounds: int = 10,
    query_mask: Tensor | None = None,
    gallery_mask: Tensor | None = None,
) -> Plan:
    """Refine a similarity matrix by entropy-regularised optimal transport with a dust-bin gain per descriptor.

    A tensor that needs a gradient goes to the log-domain reference, and so does everything that float32 scalings
    could not hold; the rest is computed with scalings.

    Args:
        similarity: (B, M, N).
        query_gain: u, (B, M) or (1, M): what a query descriptor gains by staying unmatched; None with
            `gallery_gain` None: no dust-bins, and the true counts must be equal in every pair.
        gallery_gain: v, (B, N).
        corner: ω, gain of the mass that goes from dust-bin to dust-bin.
        temperature: λ > 0, number or tensor.
        rounds: of Sinkhorn, at least 1.
        query_mask: (B, M) or (1, M) bool, True where a descriptor is real; None: all are.
        gallery_mask: (B, N) likewise.

    Example:
        >>> plan = sinkhorn(torch.eye(3)[None], torch.zeros(1, 3), torch.zeros(1, 3), 0.0)
        >>> [round(x, 3) for x in plan.row_max[0].tolist()]
        [0.95, 0.95, 0.95]
    """
    if similarity.ndim != 3 or not similarity.is_floating_point():
        raise ValueError(
            f"similarity: expected floating point (B, M, N), got {tuple(similarity.shape)} {similarity.dtype}"
        )
    if similarity.dtype in (torch.float16, torch.bfloat16):
        similarity = similarity.float()
    pairs, m, n = similarity.shape
    query_mask = _checked_mask("query_mask", query_mask, pairs, m, similarity)
    gallery_mask = _checked_mask("gallery_mask", gallery_mask, pairs, n, similarity)
    _check_gains(query_gain, gallery_gain, query_mask, gallery_mask)
    return _solve(similarity, query_gain, gallery_gain, corner, temperature, rounds, query_mask, gallery_mask)


def strengths(
    query: Descriptors, gallery: Descriptors, corner: Tensor | float, *, temperature: Tensor | float, rounds: int
) -> Strengths:
    """Strongest refined similarity of every descriptor, from prepared descriptors with their `gain`.

    A query batch of one meets every gallery picture; nothing of it is copied. The pairs are worked off in blocks, with
    gradients too, so that no memory is needed for their matrices. First derivatives only, unless the log domain is
    needed: see `gradient.py`.

    Example:
        >>> one = Descriptors(torch.eye(2)[None], gain=torch.zeros(1, 2))
        >>> strengths(one, one, 1.0, temperature=0.1, rounds=10).query.shape
        torch.Size([1, 2])
    """

    def solve(some_query: Descriptors, some_gallery: Descriptors) -> Strengths:
        plan = transport(some_query, some_gallery, corner, temperature=temperature, rounds=rounds)
        return Strengths(plan.row_max, plan.column_max)

    check_pair(query, gallery)
    if _needs_gradient(query.vectors, gallery.vectors, query.gain, gallery.gain, corner, temperature):
        _check_settings(temperature, rounds)
        query, gallery = _floating(query), _floating(gallery)
        if gradient.holds(query, gallery, _number(corner), _number(temperature), rounds, SAFE_EXPONENT):
            return Strengths(*gradient.strengths(query, gallery, corner, temperature, rounds))
        return solve(query, gallery)
    if _kernel_fits(query, gallery, _number(temperature)):
        return _fused(query, gallery, _number(corner), _number(temperature), rounds)
    parts = [solve(*block) for block in blocks(query, gallery)]
    return Strengths(torch.cat([part.query for part in parts]), torch.cat([part.gallery for part in parts]))


def _floating(descriptors: Descriptors) -> Descriptors:
    if descriptors.vectors.is_floating_point():
        return descriptors
    return replace(descriptors, vectors=with_length(descriptors.vectors, torch.float32))


def transport(
    query: Descriptors, gallery: Descriptors, corner: Tensor | float, *, temperature: Tensor | float, rounds: int
) -> Plan:
    """The plan between prepared descriptors, all pairs at once; descriptors without `gain` have no dust-bins."""
    check_pair(query, gallery)
    similarity = cosines(query, gallery)
    return _solve(similarity, query.gain, gallery.gain, corner, temperature, rounds, query.mask, gallery.mask)


def _kernel_fits(query: Descriptors, gallery: Descriptors, temperature: float) -> bool:
    """Whether a fused kernel may take these: see their docstrings for what they hold."""
    kind = query.vectors.device.type
    if query.gain is None or gallery.gain is None or kind not in KERNELS:
        return False
    if torch.float64 in (query.vectors.dtype, gallery.vectors.dtype) or temperature < KERNEL_TEMPERATURE:
        return False
    largest = max(
        float(gain.masked_fill(~mask, 0).abs().max())
        for gain, mask in ((query.gain, query.mask), (gallery.gain, gallery.mask))
    )
    return largest / temperature <= SAFE_EXPONENT and _kernel_is_there(kind)


@cache
def _kernel_is_there(kind: str) -> bool:
    if (reason := _kernel(kind).available()) is not None:
        logger.warning("the fused kernel for %s cannot run here: %s; matching is several times slower", kind, reason)
        return False
    return True


def _kernel(kind: str) -> Any:
    return import_module(KERNELS[kind])


def _fused(query: Descriptors, gallery: Descriptors, corner: float, temperature: float, rounds: int) -> Strengths:
    if rounds < 1:
        raise ValueError(f"rounds: expected at least 1, got {rounds}")
    rows, columns = _kernel(query.vectors.device.type).strengths(
        query.vectors,
        gallery.vectors,
        query.gain,
        gallery.gain,
        corner,
        temperature,
        rounds,
        query.mask,
        gallery.mask,
        # Half precision and int8 have lost more already than a kernel's 16-bit form does; float32 gets the exact form.
        exact=gallery.vectors.dtype == torch.float32,
    )
    return Strengths(rows, columns)


def _solve(
    similarity: Tensor,
    query_gain: Tensor | None,
    gallery_gain: Tensor | None,
    corner: Tensor | float,
    temperature: Tensor | float,
    rounds: int,
    query_mask: Tensor,
    gallery_mask: Tensor,
) -> Plan:
    """Choose the form: gradients, plain transport and small λ go to the reference, all else to the scalings."""
    _check_settings(temperature, rounds)
    # What stands at padded places must not matter, however large it is.
    if not bool(query_mask.all() & gallery_mask.all()):
        similarity = similarity.masked_fill(~(query_mask[:, :, None] & gallery_mask[:, None, :]), 0)
    if query_gain is None or gallery_gain is None:
        _check_equal_counts(query_mask, gallery_mask)
        query_gain = gallery_gain = None
    else:
        query_gain = query_gain.masked_fill(~query_mask, 0)
        gallery_gain = gallery_gain.masked_fill(~gallery_mask, 0)
    if (
        query_gain is not None
        and gallery_gain is not None
        and not _needs_gradient(similarity, query_gain, gallery_gain, corner, temperature)
    ):
        largest = max(float(x.abs().max()) for x in (*similarity.aminmax(), query_gain, gallery_gain))
        if largest / _number(temperature) <= SAFE_EXPONENT:
            return scaling.sinkhorn(
                similarity,
                query_gain,
                gallery_gain,
                _number(corner),
                temperature=_number(temperature),
                rounds=rounds,
                query_mask=query_mask,
                gallery_mask=gallery_mask,
            )
    return reference.sinkhorn(
        similarity,
        query_gain,
        gallery_gain,
        corner,
        temperature=temperature,
        rounds=rounds,
        query_mask=query_mask,
        gallery_mask=gallery_mask,
    )


def _check_settings(temperature: Tensor | float, rounds: int) -> None:
    if not 0 < _number(temperature) < torch.inf:
        raise ValueError(f"temperature: expected a number above 0, got {_number(temperature)}")
    if rounds < 1:
        raise ValueError(f"rounds: expected at least 1, got {rounds}")


def _number(value: Tensor | float) -> float:
    return float(value.detach()) if isinstance(value, Tensor) else value


def _needs_gradient(*values: object) -> bool:
    return torch.is_grad_enabled() and any(isinstance(value, Tensor) and value.requires_grad for value in values)


def _checked_mask(name: str, mask: Tensor | None, pairs: int, length: int, like: Tensor) -> Tensor:
    if mask is None:
        return torch.ones(1, length, dtype=torch.bool, device=like.device)
    if mask.dtype != torch.bool:
        raise TypeError(f"{name}: expected dtype torch.bool, got {mask.dtype}")
    if mask.shape not in ((pairs, length), (1, length)):
        raise ValueError(f"{name}: expected shape ({pairs} or 1, {length}), got {tuple(mask.shape)}")
    return mask


def _check_gains(u: Tensor | None, v: Tensor | None, query_mask: Tensor, gallery_mask: Tensor) -> None:
    if (u is None) != (v is None):
        raise ValueError("gains: expected both or none, got one")
    for name, gain, mask in (("query_gain", u, query_mask), ("gallery_gain", v, gallery_mask)):
        if gain is not None and (gain.ndim != 2 or gain.shape[1] != mask.shape[1]):
            raise ValueError(f"{name}: expected shape (B, {mask.shape[1]}), got {tuple(gain.shape)}")


def _check_equal_counts(query_mask: Tensor, gallery_mask: Tensor) -> None:
    m, n = torch.broadcast_tensors(query_mask.sum(1), gallery_mask.sum(1))
    if bool((m != n).any()):
        pair = int((m != n).nonzero()[0])
        raise ValueError(
            f"without dust-bins both pictures need the same number of descriptors, got {int(m[pair])} and "
            f"{int(n[pair])} in pair {pair}"
        )
