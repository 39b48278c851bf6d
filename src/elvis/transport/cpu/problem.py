"""The kernel's arguments, checked once and brought into the memory layout that it reads."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

SMALLEST_TEMPERATURE = 0.05
"""Below it exp(1/λ) leaves too few bits for the mantissa of a 16-bit entry; the log domain serves that."""
TYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int8)
"""What descriptors may be stored as."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Arguments of `strengths`, contiguous, gains and masks of full shape, all on the kind of device asked for."""

    query: Tensor
    gallery: Tensor
    query_gain: Tensor
    gallery_gain: Tensor
    query_mask: Tensor
    gallery_mask: Tensor
    corner: float
    temperature: float
    rounds: int
    device: str = "cpu"

    def __post_init__(self) -> None:
        if not SMALLEST_TEMPERATURE <= self.temperature < float("inf"):
            raise ValueError(f"temperature: expected at least {SMALLEST_TEMPERATURE}, got {self.temperature}")
        if self.rounds < 1:
            raise ValueError(f"rounds: expected at least 1, got {self.rounds}")
        if self.query.ndim != 3 or self.gallery.ndim != 3 or self.query.shape[2] != self.gallery.shape[2]:
            raise ValueError(
                f"query and gallery: expected (1 or B, M, D) and (B, N, D), got {tuple(self.query.shape)} and "
                f"{tuple(self.gallery.shape)}"
            )
        if len(self.query) not in (1, len(self.gallery)):
            raise ValueError(f"query: expected a batch of 1 or of {len(self.gallery)}, got {len(self.query)}")
        for side in ("query", "gallery"):
            vectors = getattr(self, side)
            if vectors.dtype not in TYPES:
                names = ", ".join(str(kind).removeprefix("torch.") for kind in TYPES)
                raise TypeError(f"{side}: expected one of {names}, got {vectors.dtype}")
            for what in (f"{side}_gain", f"{side}_mask"):
                shape, expected = tuple(getattr(self, what).shape), tuple(vectors.shape[:2])
                if shape != expected:
                    raise ValueError(f"{what}: expected shape {expected}, got {shape}")
            if getattr(self, f"{side}_mask").dtype != torch.bool:
                raise TypeError(f"{side}_mask: expected dtype torch.bool, got {getattr(self, f'{side}_mask').dtype}")
        self._lay_out()

    def _lay_out(self) -> None:
        for name in ("query", "gallery", "query_gain", "gallery_gain", "query_mask", "gallery_mask"):
            value = getattr(self, name).detach()
            if value.device.type != self.device:
                raise ValueError(f"{name}: expected a tensor on device {self.device}, got one on {value.device}")
            if name.endswith("gain"):
                value = value.to(torch.float32)
            object.__setattr__(self, name, value.contiguous())


def gain_or_none(gain: Tensor | None, vectors: Tensor) -> Tensor:
    """The gain, or for None one that lets nothing into the dust-bin."""
    return torch.full(vectors.shape[:2], -torch.inf, device=vectors.device) if gain is None else gain
