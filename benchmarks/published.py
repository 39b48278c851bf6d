"""The transport of the paper as the paper writes it: log domain, plain PyTorch, float32, the whole batch at once.

The extended matrix of equation (1), divided by λ; marginals of equation (2), the dust-bins taking what the other side
has; ten rounds of Sinkhorn with logsumexp; the plan without its dust-bins; the strongest entry of every row and column.
"""

import math

import torch
from torch import Tensor


def strengths(
    query: Tensor,
    gallery: Tensor,
    query_gain: Tensor,
    gallery_gain: Tensor,
    corner: float = 1.0,
    temperature: float = 0.1,
    rounds: int = 10,
) -> tuple[Tensor, Tensor]:
    """(B, M) and (B, N) from a query (1, M, D), gallery pictures (B, N, D) and their gains."""
    pairs, n, _ = gallery.shape
    m = query.shape[1]
    similarity = torch.einsum("bid,bjd->bij", query.expand(pairs, -1, -1), gallery)
    extended = similarity.new_empty(pairs, m + 1, n + 1)
    extended[:, :m, :n] = similarity
    extended[:, m, :n] = gallery_gain
    extended[:, :m, n] = query_gain
    extended[:, m, n] = corner
    extended = extended / temperature
    log_rows = similarity.new_zeros(pairs, m + 1)
    log_rows[:, m] = math.log(n)
    log_columns = similarity.new_zeros(pairs, n + 1)
    log_columns[:, n] = math.log(m)
    u, v = torch.zeros_like(log_rows), torch.zeros_like(log_columns)
    for _ in range(rounds):
        u = log_rows - torch.logsumexp(extended + v[:, None, :], dim=2)
        v = log_columns - torch.logsumexp(extended + u[:, :, None], dim=1)
    plan = (extended + u[:, :, None] + v[:, None, :])[:, :m, :n].exp()
    return plan.amax(2), plan.amax(1)
