"""Which patches of a picture are kept: a strength for each, and the strongest of them."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from elvis.errors import WeightsError
from elvis.image_files import shown
from elvis.weights import read_published


def strength_by_both_cues(grid: Tensor, attention: Tensor) -> Tensor:
    """(B, h*w) strength without training: rank by attention plus rank by distance to the mean token, in [0, 2].

    Args:
        grid: (B, h, w, D) patch tokens.
        attention: (B, h, w) how much the backbone's summary of the picture attends to each patch.

    Example:
        >>> grid = torch.tensor([[[[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]]])
        >>> strength_by_both_cues(grid, torch.tensor([[[0.2, 0.1, 0.7]]]))
        tensor([[0.5000, 0.0000, 2.0000]])
    """
    tokens = grid.flatten(1, 2)
    distance = 1 - functional.cosine_similarity(tokens, tokens.mean(dim=1, keepdim=True), dim=2)
    return _rank(attention.flatten(1)) + _rank(distance)


def _rank(values: Tensor) -> Tensor:
    """Place of each value in its row, 0 for the smallest and 1 for the largest; equal values share theirs."""
    ordered = values.sort(dim=1).values
    below = torch.searchsorted(ordered, values.contiguous(), right=False)
    return below / max(1, values.shape[1] - 1)


class SpatialAttention2d(nn.Module):
    """The published detector: a weight above 0 for every patch from its unnormalised token.

    Example:
        >>> SpatialAttention2d(8).eval()(torch.zeros(2, 3, 5, 8)).shape
        torch.Size([2, 15])
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(dim, dim, kernel_size=1)
        self.bn = nn.BatchNorm2d(dim, eps=1e-5, momentum=0.1)
        self.conv2 = nn.Conv2d(dim, 1, kernel_size=1)

    def forward(self, grid: Tensor) -> Tensor:
        """(B, h*w) weights of (B, h, w, D) tokens."""
        inner = functional.relu(self.bn(self.conv1(grid.permute(0, 3, 1, 2))))
        return functional.softplus(self.conv2(inner)).flatten(1)


def load_detector(path: str | Path) -> SpatialAttention2d:
    """A published or own detector file, ready for use in fp32.

    Raises:
        WeightsError: it is no detector; says what is wrong with it.
    """
    state = read_published(path)
    weight = state.get("conv1.weight")
    if weight is None or weight.ndim != 4:
        raise WeightsError(f"{shown(path)} holds no detector: expected conv1.weight of shape (D, D, 1, 1)")
    detector = SpatialAttention2d(weight.shape[0])
    # Files written by hand or by old versions lack the counter, which nothing reads outside training.
    state.setdefault("bn.num_batches_tracked", torch.tensor(0))
    try:
        detector.load_state_dict(state)
    except RuntimeError as error:
        reason = " ".join(str(error).partition("\n")[2].split())
        raise WeightsError(f"{shown(path)} holds no detector: {shown(reason)}") from error
    return detector.eval().requires_grad_(False)


def strongest(strength: Tensor, count: int) -> Tensor:
    """(B, M) places of the `count` strongest entries of each row, or of all; strongest first, equals in order.

    Example:
        >>> strongest(torch.tensor([[0.1, 0.9, 0.5, 0.9]]), 3)
        tensor([[1, 3, 2]])
    """
    if count < 1:
        raise ValueError(f"count: expected at least 1, got {count}")
    return strength.argsort(dim=1, descending=True, stable=True)[:, :count]
