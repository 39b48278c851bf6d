"""Strengths with their gradients, for training: scalings kept, similarities computed again, nothing else stored.

Forward. With K̂ = exp(Ŝ/λ), the extended similarities of equation (1) as a kernel (dust-bins last), and masses α of
the rows and β of the columns, Sinkhorn's rounds t = 1 … T are

    r_t = α / (K̂ c_{t−1})        c_t = β / (K̂ᵀ r_t)        c_0 = 1, 0 at padding

and the plan is P = diag(r_T) K̂ diag(c_T). Of it only the strongest entry of each row and column is wanted.

Backward, with a bar for the derivative of the loss by a quantity, and f_t = log r_t, g_t = log c_t. Where s is the
strongest entry P_ij of its row or column, s̄·s is added to f̄_i, ḡ_j and the derivative by Ŝ_ij/λ. Through the rounds,
from the last to the first (g_t depends on f_t, which depends on g_{t−1}):

    y_t = c_t ḡ_t / β        f̄_t ← f̄_t − r_t (K̂ y_t)              f̄_T starts with what the strengths gave, others with 0
    x_t = r_t f̄_t / α        ḡ_{t−1} = −c_{t−1} (K̂ᵀ x_t)

and every round adds −K̂ ∘ (r_t y_tᵀ + x_t c_{t−1}ᵀ) to the derivative by Ŝ/λ. All rounds together are one matrix
product of 2T columns:

    D = the strongest entries' shares − K̂ ∘ [r_1 … r_T x_1 … x_T] [y_1 … y_T c_0 … c_{T−1}]ᵀ

    S̄, ū, v̄, ω̄ = D / λ, by place        λ̄ = −Σ D ∘ Ŝ / λ²

A plain autograd through the log domain keeps some 2T matrices; here r_t and c_t are kept and K̂ is computed again,
a few pairs at a time so that they stay in the cache: no matrix outlives its pairs, and memory grows with M + N.

As in `scaling.py` a positive ω is taken out of the last row of Ŝ: exp(ω/λ) moves from that row into its scaling. P does
not change, hence neither do derivatives, and that row of D sums to zero, so λ̄ is the same from either.
Among equal strongest entries the first gets the derivative. There is no second derivative.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elvis.values import Descriptors

CPU_BLOCK = 1 << 19
"""Entries of matrices worked on together on a CPU: 2 MiB in float32, so that twenty rounds find them in the cache."""
GPU_BLOCK = 1 << 27
"""The same on a GPU, where many pairs are needed to fill it: 512 MiB in float32."""
SAFE_GROWTH = 30.0
"""exp(30) is how far scalings may drift apart; each round of a slow convergence adds the ratio of the counts."""


def holds(
    query: Descriptors, gallery: Descriptors, corner: float, temperature: float, rounds: int, safe_exponent: float
) -> bool:
    """Whether float32 holds all that `strengths` computes; lengths bound the cosines before there are any.

    Args:
        query: prepared descriptors; without `gain` the answer is no.
        gallery: likewise.
        corner: ω. A large one slows convergence where counts differ: scalings drift until they make up for it.
        temperature: λ.
        rounds: of Sinkhorn.
        safe_exponent: largest exponent of K̂, corner apart.
    """
    if query.gain is None or gallery.gain is None:
        return False
    sides = ((query.vectors, query.gain, query.mask), (gallery.vectors, gallery.gain, gallery.mask))
    longest = [float(_unpadded(vectors.detach(), mask).norm(dim=2).max()) for vectors, _, mask in sides]
    gain = max(float(_unpadded(gain.detach(), mask).abs().max()) for _, gain, mask in sides)
    growth = rounds * float((gallery.counts / query.counts).log().abs().max())
    to_make_up = (abs(corner) + gain) / temperature
    return max(math.prod(longest), gain) / temperature <= safe_exponent and min(growth, to_make_up) <= SAFE_GROWTH


def strengths(
    query: Descriptors,
    gallery: Descriptors,
    corner: Tensor | float,
    temperature: Tensor | float,
    rounds: int,
) -> tuple[Tensor, Tensor]:
    """Strongest entry of each row (B, M) and column (B, N) of the plan, differentiable by all tensors; 0 at padding.

    Args:
        query: B or 1 pictures, prepared, with `gain`, for which `holds` says yes.
        gallery: B pictures likewise.
        corner: ω, one number.
        temperature: λ, one number.
        rounds: of Sinkhorn.

    Example:
        >>> x = torch.eye(2)[None].requires_grad_()
        >>> picture = Descriptors(x, gain=torch.zeros(1, 2))
        >>> rows, columns = strengths(picture, picture, 1.0, 0.1, rounds=10)
        >>> (rows.sum() + columns.sum()).backward()
        >>> bool(x.grad[0, 0, 0] > 0 > x.grad[0, 0, 1])
        True
    """
    if query.gain is None or gallery.gain is None:
        raise ValueError("gain: expected descriptors from a model's `prepare`, got descriptors without gain")
    dtype = torch.promote_types(torch.promote_types(query.vectors.dtype, gallery.vectors.dtype), torch.float32)
    given = (
        *(_unpadded(side.vectors, side.mask).to(dtype) for side in (query, gallery)),
        _unpadded(query.gain, query.mask).to(dtype),
        _unpadded(gallery.gain, gallery.mask).to(dtype),
        *(torch.as_tensor(x, dtype=dtype, device=gallery.vectors.device).reshape(()) for x in (corner, temperature)),
    )
    rows, columns = _Strengths.apply(*given, query.mask, gallery.mask, rounds)  # pyright: ignore[reportGeneralTypeIssues]
    return rows, columns


def _unpadded(value: Tensor, mask: Tensor) -> Tensor:
    """Zero at padding; the same tensor where there is none."""
    if bool(mask.all()):
        return value
    return value.masked_fill(~mask.reshape(mask.shape + (1,) * (value.ndim - 2)), 0)


@dataclass(frozen=True, slots=True, eq=False)
class _Problem:
    """What the transport is computed from, zero at padding; its methods work on a run of pairs."""

    query: Tensor
    gallery: Tensor
    query_gain: Tensor
    gallery_gain: Tensor
    corner: Tensor
    temperature: Tensor
    query_mask: Tensor
    gallery_mask: Tensor

    def runs(self) -> Iterator[slice]:
        """Runs of pairs whose matrices fit the budget, in order."""
        budget = CPU_BLOCK if self.gallery.device.type == "cpu" else GPU_BLOCK
        step = max(1, budget // ((self.query.shape[1] + 1) * (self.gallery.shape[1] + 1)))
        return (slice(start, start + step) for start in range(0, len(self.gallery), step))

    def vectors(self, run: slice) -> tuple[Tensor, Tensor]:
        """Query's and gallery's vectors of a run; a query of one is seen by all, without a copy."""
        gallery = self.gallery[run]
        return _of_run(self.query, run).expand(len(gallery), -1, -1), gallery

    def full_precision(self) -> torch.autocast:
        """Mixed precision stops here: exponents of cosines over λ need all of their digits, both ways."""
        return torch.autocast(self.gallery.device.type, enabled=False)

    def scaled(self, run: slice) -> Tensor:
        """Ŝ/λ of a run, (pairs, M + 1, N + 1), a positive ω taken out of the last row."""
        query, gallery = self.vectors(run)
        pairs, m, n = len(gallery), query.shape[1], gallery.shape[1]
        lowered = self.corner.clamp_min(0)
        extended = gallery.new_empty(pairs, m + 1, n + 1)
        extended[:, :m, :n] = torch.bmm(query, gallery.transpose(1, 2))
        extended[:, :m, n] = _of_run(self.query_gain, run)
        extended[:, m, :n] = self.gallery_gain[run] - lowered
        extended[:, m, n] = self.corner - lowered
        return extended.div_(self.temperature)

    def masses(self, run: slice) -> tuple[Tensor, Tensor]:
        """α (pairs, M + 1) and β (pairs, N + 1) of a run: 1, 0 at padding, and for a dust-bin the other's count."""
        pairs, kind = len(self.gallery[run]), self.gallery.dtype
        rows, columns = (mask.to(kind) for mask in (_of_run(self.query_mask, run), self.gallery_mask[run]))
        counts = rows.sum(1, keepdim=True), columns.sum(1, keepdim=True)
        return (
            torch.cat([rows.expand(pairs, -1), counts[1]], dim=1),
            torch.cat([columns, counts[0].expand(pairs, -1)], dim=1),
        )


class _Strengths(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> tuple[Tensor, Tensor]:
        *tensors, rounds = given
        problem = _Problem(*tensors)
        with problem.full_precision():
            found = [_fit(problem, run, rounds) for run in problem.runs()]
        rows, row_places, columns, column_places, *scalings = (torch.cat(parts) for parts in zip(*found, strict=True))
        ctx.save_for_backward(*tensors, rows, row_places, columns, column_places, *scalings)
        return rows, columns

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]  # the decorator hides the names
        ctx: Any, *loss: Tensor
    ) -> tuple[Tensor | None, ...]:
        *tensors, rows, row_places, columns, column_places, r, c = ctx.saved_tensors
        problem = _Problem(*tensors)
        needed = dict(zip(_Problem.__slots__, ctx.needs_input_grad, strict=False))
        sums = {name: torch.zeros_like(getattr(problem, name)) for name, wanted in needed.items() if wanted}
        with problem.full_precision():
            for run in problem.runs():
                scaled = problem.scaled(run)
                kernel = scaled.exp() if "temperature" in sums else scaled.exp_()
                row_shares = row_places[run], loss[0][run] * rows[run]
                column_shares = column_places[run], loss[1][run] * columns[run]
                by_scaled = _unroll(problem, run, kernel, r[run], c[run], row_shares, column_shares)
                _collect(problem, run, scaled, by_scaled, sums)
        return *(sums.get(name) for name in needed), None


def _fit(problem: _Problem, run: slice, rounds: int) -> tuple[Tensor, ...]:
    """Strongest entries of rows and columns and their places; r (pairs, T, M + 1) and c (pairs, T + 1, N + 1)."""
    kernel = problem.scaled(run).exp_()
    alpha, beta = problem.masses(run)
    m, n = kernel.shape[1] - 1, kernel.shape[2] - 1
    r = kernel.new_empty(len(kernel), rounds, m + 1)
    c = kernel.new_empty(len(kernel), rounds + 1, n + 1)
    c[:, 0] = beta > 0
    for t in range(rounds):
        r[:, t] = alpha / _times(kernel, c[:, t])
        c[:, t + 1] = beta / _transposed_times(kernel, r[:, t])
    inner = kernel[:, :m, :n]
    last_r, last_c = r[:, -1, :m], c[:, -1, :n]
    rows, row_places = (inner * last_c[:, None, :]).max(2)
    columns, column_places = (inner * last_r[:, :, None]).max(1)
    return rows * last_r, row_places, columns * last_c, column_places, r, c


def _unroll(
    problem: _Problem,
    run: slice,
    kernel: Tensor,
    r: Tensor,
    c: Tensor,
    row_shares: tuple[Tensor, Tensor],
    column_shares: tuple[Tensor, Tensor],
) -> Tensor:
    """D, the derivative by Ŝ/λ, from the strongest entries: their place in each row and column, and s̄·s."""
    # At padding the scalings are 0 and so are x and y: any other mass will do there to divide by.
    alpha, beta = (mass.masked_fill(mass == 0, 1) for mass in problem.masses(run))
    (row_places, row_values), (column_places, column_values) = row_shares, column_shares
    f, g = torch.zeros_like(alpha), torch.zeros_like(beta)
    f[:, :-1] = row_values.scatter_add(1, column_places, column_values)
    g[:, :-1] = column_values.scatter_add(1, row_places, row_values)
    x, y = torch.empty_like(r), torch.empty_like(c[:, 1:])
    for t in reversed(range(r.shape[1])):
        y[:, t] = c[:, t + 1] * g / beta
        f = f - r[:, t] * _times(kernel, y[:, t])
        x[:, t] = r[:, t] * f / alpha
        g = -c[:, t] * _transposed_times(kernel, x[:, t])
        f = torch.zeros_like(f)
    left, right = torch.cat([r, x], dim=1), torch.cat([y, c[:, :-1]], dim=1)
    by_scaled = torch.bmm(left.transpose(1, 2), right).mul_(kernel).neg_()
    by_scaled[:, :-1, :-1].scatter_add_(2, row_places[:, :, None], row_values[:, :, None])
    by_scaled[:, :-1, :-1].scatter_add_(1, column_places[:, None, :], column_values[:, None, :])
    return by_scaled


def _collect(problem: _Problem, run: slice, scaled: Tensor, by_scaled: Tensor, sums: dict[str, Tensor]) -> None:
    """Add a run's derivatives, given D, to those that are asked for."""
    if "temperature" in sums:
        sums["temperature"] -= (scaled * by_scaled).sum() / problem.temperature
    by_extended = by_scaled.div_(problem.temperature)
    inner = by_extended[:, :-1, :-1]
    query, gallery = problem.vectors(run)
    if "query" in sums:
        _add(sums["query"], run, torch.bmm(inner, gallery))
    if "gallery" in sums:
        sums["gallery"][run] = torch.bmm(inner.transpose(1, 2), query)
    if "query_gain" in sums:
        _add(sums["query_gain"], run, by_extended[:, :-1, -1])
    if "gallery_gain" in sums:
        sums["gallery_gain"][run] = by_extended[:, -1, :-1]
    if "corner" in sums:
        sums["corner"] += by_extended[:, -1, -1].sum()


def _add(total: Tensor, run: slice, part: Tensor) -> None:
    """A query of one met all pairs: its derivatives add up."""
    if len(total) == 1:
        total += part.sum(dim=0, keepdim=True)
    else:
        total[run] = part


def _of_run(value: Tensor, run: slice) -> Tensor:
    return value if len(value) == 1 else value[run]


def _times(kernel: Tensor, columns: Tensor) -> Tensor:
    """K̂ c for each pair. A row vector times K̂ᵀ, not K̂ times a column: torch has a slow road for the latter on CPUs."""
    return torch.bmm(columns[:, None, :], kernel.transpose(1, 2))[:, 0]


def _transposed_times(kernel: Tensor, rows: Tensor) -> Tensor:
    """K̂ᵀ r for each pair."""
    return torch.bmm(rows[:, None, :], kernel)[:, 0]
