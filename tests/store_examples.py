"""Real, tiny things that the store's tests share: an extractor, pictures, records, cards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from elvis import Descriptors
from elvis.models import ChamferConfig, ChamferTransport
from elvis.store import IndexCard, Record, Stamp

DIM, IMAGE_DIM, CELLS = 6, 6, 16


@dataclass(frozen=True)
class TwoColourSettings:
    cells: int = CELLS

    def to_dict(self) -> dict[str, Any]:
        return {"cells": self.cells}


class TwoColour:
    """Sixteen cells of a picture, each described by the mean and the deviation of its three colours."""

    dim, image_dim = DIM, IMAGE_DIM

    def __init__(self, fingerprint: str = "twocolour") -> None:
        self.settings, self.fingerprint = TwoColourSettings(), fingerprint
        self.pictures = 0

    def extract(self, pictures: Iterable[Image.Image]) -> Iterator[Descriptors]:
        for picture in pictures:
            self.pictures += 1
            pixels = np.asarray(picture.convert("RGB").resize((32, 32), Image.Resampling.BOX), np.float32) / 255
            cells = pixels.reshape(4, 8, 4, 8, 3).transpose(0, 2, 1, 3, 4).reshape(CELLS, 64, 3)
            values = np.concatenate([cells.mean(axis=1), cells.std(axis=1)], axis=1) + 0.01
            vectors = torch.from_numpy(values)
            whole = torch.nn.functional.normalize(vectors.double().mean(dim=0), dim=0).float()
            grid = torch.stack(torch.meshgrid(torch.arange(4), torch.arange(4), indexing="xy"), -1).reshape(-1, 2)
            yield Descriptors(
                vectors[None],
                xy=((grid + 0.5) / 4)[None],
                strength=vectors.norm(dim=1)[None],
                size=torch.tensor([picture.size]),
                image_vector=whole[None],
            )


def matcher() -> ChamferTransport:
    return ChamferTransport(ChamferConfig(standardise=True))


def draw_pictures(folder: Path, count: int, start: int = 0, side: int = 24) -> list[Path]:
    """Small pictures of two random colours each, every one different."""
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    for number in range(start, start + count):
        colours = np.random.default_rng(number).integers(0, 256, (2, 3), np.uint8)
        pixels = np.empty((side, side + number % 7, 3), np.uint8)
        pixels[:], pixels[: side // 2] = colours[0], colours[1]
        path = folder / f"{number:05d}.png"
        Image.fromarray(pixels).save(path)
        paths.append(path)
    return paths


def card(**changes: Any) -> IndexCard:
    values: dict[str, Any] = {
        "extraction": {"cells": CELLS},
        "extraction_fingerprint": "twocolour",
        "model": "chamfer-ot",
        "model_settings": {"standardise": True},
        "model_fingerprint": matcher().fingerprint,
        "dim": DIM,
        "image_dim": IMAGE_DIM,
    }
    return IndexCard(**{**values, **changes})


def record(number: int, *, path: str | None = None, count: int = 0, **metadata: Any) -> Record:
    """A record with random but reproducible content."""
    generator = torch.Generator().manual_seed(number)
    count = count or 3 + number % 5

    def picture() -> Descriptors:
        return Descriptors(
            torch.randn(1, count, DIM, generator=generator),
            xy=torch.rand(1, count, 2, generator=generator),
            strength=torch.rand(1, count, generator=generator),
            gain=torch.rand(1, count, generator=generator),
            size=torch.tensor([[640 + number, 480]]),
            image_vector=torch.nn.functional.normalize(torch.randn(1, IMAGE_DIM, generator=generator), dim=1),
        )

    stamp = Stamp(1000 + number, 10**18 + number, f"{number:064x}")
    return Record(path or f"/pictures/{number:05d}.png", stamp, picture(), picture(), metadata)
