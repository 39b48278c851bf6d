"""The same transport with scalings instead of potentials: matrix–vector products, inference only.

With K = exp(S/λ), a = exp(u/λ), b = exp(v/λ) and w = exp(ω/λ), the plan is r_i K_ij c_j for scalings r and c (and ρ, γ
of the two dust-bins), and a round of Sinkhorn is

    r_i = 1 / (Σ_j K_ij c_j + a_i γ)          ρ = N / (Σ_j b_j c_j + w γ)
    c_j = 1 / (Σ_i K_ij r_i + b_j ρ)          γ = M / (Σ_i a_i r_i + w ρ)

starting from c = 1 and γ = 1 (0 for padding). |S| ≤ 1, so K stays within e^±1/λ, which float32 holds for λ down to
about 1/30. ω is unbounded: where it is positive its factor e^(ω/λ) moves into ρ, so that w ≤ 1 and b shrinks instead;
where it is negative w shrinks. Either way nothing overflows, and the answer is the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class ScaledPlan:
    """A plan as kernel and scalings; has the same properties as `reference.LogPlan`.

    Attributes:
        kernel: (B, M, N) exp(S/λ).
        rows: (B, M) scaling r; 0 at padding.
        columns: (B, N) scaling c; 0 at padding.
    """

    kernel: Tensor
    rows: Tensor
    columns: Tensor

    @property
    def plan(self) -> Tensor:
        """(B, M, N) refined similarities S′, in [0, 1]; 0 at padding."""
        return self.kernel * self.rows[:, :, None] * self.columns[:, None, :]

    @property
    def row_max(self) -> Tensor:
        """(B, M) strongest entry of each row of the plan; 0 at padding."""
        return (self.kernel * self.columns[:, None, :]).amax(2) * self.rows

    @property
    def column_max(self) -> Tensor:
        """(B, N) strongest entry of each column of the plan; 0 at padding."""
        return (self.kernel * self.rows[:, :, None]).amax(1) * self.columns


def sinkhorn(
    similarity: Tensor,
    query_gain: Tensor,
    gallery_gain: Tensor,
    corner: float,
    *,
    temperature: float,
    rounds: int,
    query_mask: Tensor,
    gallery_mask: Tensor,
) -> ScaledPlan:
    """Solve the problem of `reference.sinkhorn`, several times faster and without gradients."""
    kernel = (similarity / temperature).exp_()
    # The dust-bins' side in double precision, where there is one: b, ρ and γ leave single where ω is large and M ≠ N.
    wide = torch.float32 if kernel.device.type == "mps" else torch.float64
    a = (query_gain.to(wide) / temperature).exp()
    b = ((gallery_gain.to(wide) - max(corner, 0.0)) / temperature).exp()
    w = math.exp(min(corner, 0.0) / temperature)
    m = query_mask.sum(dim=1, keepdim=True).to(wide)
    n = gallery_mask.sum(dim=1, keepdim=True).to(wide)
    c = gallery_mask.to(kernel.dtype).expand(kernel.shape[0], -1)
    gamma = (m > 0).to(wide)
    r = rho = torch.empty(0)
    for _ in range(rounds):
        # (r, ρ)·t with (c, γ)/t is the same plan; without this they drift by up to N/M a round where M ≠ N.
        drift = (c.sum(dim=1, keepdim=True) / n).masked_fill(n == 0, 1)
        c, gamma = c / drift.to(c.dtype), gamma / drift
        # A row times Kᵀ: for K times a column torch's road on CPUs is ten times slower.
        total = torch.bmm(c[:, None, :], kernel.transpose(1, 2))[:, 0, :]
        r = _divide(1, total + (a * gamma).to(c.dtype), query_mask)
        rho = _divide(n, (b * c).sum(dim=1, keepdim=True) + w * gamma, n > 0)
        c = _divide(1, torch.bmm(r[:, None, :], kernel)[:, 0, :] + (b * rho).to(c.dtype), gallery_mask)
        gamma = _divide(m, (a * r).sum(dim=1, keepdim=True) + w * rho, m > 0)
    return ScaledPlan(kernel, r, c)


def _divide(mass: Tensor | int, total: Tensor, real: Tensor) -> Tensor:
    # Padding has no mass and perhaps no total: 0, not 0/0.
    return (mass / total).masked_fill(~real, 0)
