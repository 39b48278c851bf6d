"""A small extractor and small folders, both real."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from elvis import Descriptors

DIM = 12


class CellExtractor:
    """Sixteen cells of a picture, each described by a fixed random function of its mean colour and place."""

    fingerprint = "0123456789abcdef0123456789abcdef"
    precision = "fp32"
    dim = DIM

    def __init__(self) -> None:
        self.extracted = 0
        generator = torch.Generator().manual_seed(5)
        self._weight = torch.randn(5, DIM, generator=generator)

    def extract(self, pictures: Iterable[object]) -> Iterator[Descriptors]:
        for each in pictures:
            image, crop = each if isinstance(each, tuple) else (each, None)
            if crop is not None:
                x, y, w, h = crop
                box = (x * image.width, y * image.height, (x + w) * image.width, (y + h) * image.height)
                image = image.crop(tuple(round(side) for side in box))
            colours = torch.tensor(np.asarray(image.resize((4, 4), Image.Resampling.BOX)) / 255).float().reshape(16, 3)
            place = torch.stack(torch.meshgrid(torch.arange(4), torch.arange(4), indexing="xy"), -1).reshape(16, 2)
            xy = (place + 0.5) / 4
            vectors = torch.sin(4 * torch.cat([colours, xy], dim=1) @ self._weight)
            self.extracted += 1
            yield Descriptors(
                vectors[None],
                xy=xy[None],
                strength=colours.sum(1)[None],
                size=torch.tensor([image.size]),
                image_vector=torch.nn.functional.normalize(colours.mean(0) - 0.4, dim=0)[None],
            )


@pytest.fixture
def extractor() -> CellExtractor:
    return CellExtractor()


def picture(seed: int, variant: int = 0) -> Image.Image:
    """Coloured blocks of a seed, with some noise of a variant."""
    blocks = np.random.default_rng(seed).integers(0, 255, (4, 4, 3))
    noise = np.random.default_rng([seed, variant]).integers(-40, 40, (4, 4, 3)) if variant else 0
    return Image.fromarray(np.clip(blocks + noise, 0, 255).astype(np.uint8)).resize((48, 32), Image.Resampling.NEAREST)


@pytest.fixture
def make_folder(tmp_path: Path) -> Callable[..., Path]:
    """Write a folder from rows (path, role, label, junk); a path `7-1.png` shows variant 1 of object 7."""

    def make(rows: Iterable[tuple[str, str, str, str]], name: str = "toys", *, absent: tuple[str, ...] = ()) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        with (folder / "images.csv").open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream)
            writer.writerow(("path", "role", "label", "junk"))
            for row in rows:
                writer.writerow(row)
                file = folder / row[0]
                file.parent.mkdir(exist_ok=True, parents=True)
                if row[0] not in absent:
                    seed, _, variant = Path(row[0]).stem.partition("-")
                    picture(int(seed), int(variant or 0)).save(file)
        return folder

    return make


@pytest.fixture
def toys(make_folder: Callable[..., Path]) -> Path:
    """Six objects in two views each, all query and database at once, and three distractors."""
    rows = [(f"images/{seed}-{variant}.png", "both", str(seed), "") for seed in range(6) for variant in (1, 2)]
    return make_folder([*rows, *((f"images/{seed}.png", "database", "", "") for seed in (90, 91, 92))])
