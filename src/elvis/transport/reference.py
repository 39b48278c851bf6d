"""Optimal transport with dust-bins in the log domain: the definition that every other form must agree with.

Equation (1) of the paper extends the similarities S (M×N) by one column of query gains u, one row of gallery
gains v, and a corner ω:

    Ŝ = [ S   u ]
        [ vᵀ  ω ]

Equation (2) asks for the plan P ≥ 0 that maximises ⟨P, Ŝ⟩ + λ·H(P) under the marginals

    rows     a = [1, …, 1, N]        every query descriptor sends 1, the query dust-bin sends N
    columns  b = [1, …, 1, M]        every gallery descriptor receives 1, the gallery dust-bin receives M

where M and N count the *real* descriptors. Its solution has the form P = exp(Ŝ/λ + f ⊕ g); Sinkhorn's rounds find
the potentials by fitting the rows, then the columns, in turn:

    f ← log a − logsumexp over columns of (Ŝ/λ + g)
    g ← log b − logsumexp over rows    of (Ŝ/λ + f)

A padded descriptor has no mass (log a = −∞) and its potential is −∞ from the start, so that it takes part in no
sum: padding is exact after any number of rounds. Without dust-bins only S and marginals of one are left.

This file is short, differentiable through all rounds, and never optimised.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class LogPlan:
    """A plan as scaled similarities and potentials; what is asked for is computed when it is asked for.

    Attributes:
        scaled: (B, M, N) S/λ.
        rows: (B, M) potential f of the query descriptors; −∞ at padding.
        columns: (B, N) potential g of the gallery descriptors; −∞ at padding.
    """

    scaled: Tensor
    rows: Tensor
    columns: Tensor

    @property
    def plan(self) -> Tensor:
        """(B, M, N) refined similarities S′, the plan without its dust-bins, in [0, 1]; 0 at padding."""
        return (self.scaled + self.rows[:, :, None] + self.columns[:, None, :]).exp()

    @property
    def row_max(self) -> Tensor:
        """(B, M) strongest entry of each row of the plan; 0 at padding."""
        return ((self.scaled + self.columns[:, None, :]).amax(2) + self.rows).exp()

    @property
    def column_max(self) -> Tensor:
        """(B, N) strongest entry of each column of the plan; 0 at padding."""
        return ((self.scaled + self.rows[:, :, None]).amax(1) + self.columns).exp()


def sinkhorn(
    similarity: Tensor,
    query_gain: Tensor | None,
    gallery_gain: Tensor | None,
    corner: Tensor | float,
    *,
    temperature: Tensor | float,
    rounds: int,
    query_mask: Tensor,
    gallery_mask: Tensor,
) -> LogPlan:
    """Solve (2) for a batch of pairs; arguments as in `elvis.transport.sinkhorn`, masks given."""
    query_mask, gallery_mask = (mask.expand(similarity.shape[0], -1) for mask in (query_mask, gallery_mask))
    log_rows = _log_mass(query_mask, similarity)
    log_columns = _log_mass(gallery_mask, similarity)
    if query_gain is None or gallery_gain is None:
        scaled = similarity / temperature
    else:
        scaled = _with_dustbins(similarity, query_gain, gallery_gain, corner) / temperature
        log_rows = torch.cat([log_rows, _log_count(gallery_mask, similarity)], dim=1)
        log_columns = torch.cat([log_columns, _log_count(query_mask, similarity)], dim=1)
    f = torch.zeros_like(log_rows)
    g = torch.zeros_like(log_columns).masked_fill(log_columns.isneginf(), -torch.inf)
    for _ in range(rounds):
        f = _fit(log_rows, torch.logsumexp(scaled + g[:, None, :], dim=2))
        g = _fit(log_columns, torch.logsumexp(scaled + f[:, :, None], dim=1))
    m, n = similarity.shape[1:]
    return LogPlan(scaled[:, :m, :n], f[:, :m], g[:, :n])


def _with_dustbins(similarity: Tensor, u: Tensor, v: Tensor, corner: Tensor | float) -> Tensor:
    """Ŝ of equation (1), (B, M + 1, N + 1)."""
    pairs, m, n = similarity.shape
    omega = torch.as_tensor(corner, dtype=similarity.dtype, device=similarity.device).expand(pairs, 1, 1)
    upper = torch.cat([similarity, u.to(similarity.dtype).expand(pairs, m)[:, :, None]], dim=2)
    lower = torch.cat([v.to(similarity.dtype).expand(pairs, n)[:, None, :], omega], dim=2)
    return torch.cat([upper, lower], dim=1)


def _log_mass(mask: Tensor, like: Tensor) -> Tensor:
    """Log of one for a real descriptor, of zero for a padded one."""
    return torch.zeros(mask.shape, dtype=like.dtype, device=like.device).masked_fill(~mask, -torch.inf)


def _log_count(mask: Tensor, like: Tensor) -> Tensor:
    return mask.sum(dim=1, keepdim=True).to(like.dtype).log()


def _fit(log_mass: Tensor, log_sum: Tensor) -> Tensor:
    # Where there is no mass the potential is −∞ whatever the sum is; −∞ − (−∞) would be NaN.
    return torch.where(log_mass.isneginf(), log_mass, log_mass - log_sum)
