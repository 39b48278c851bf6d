"""Values and models that more than one test file uses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageEnhance

from elvis import Descriptors
from elvis.models import Chamfer, ChamferConfig, ChamferTransport, Elvis, ElvisConfig


def random_pictures(
    pictures: int, count: int, dim: int, *, seed: int, dtype: torch.dtype = torch.float32
) -> Descriptors:
    """Random descriptors in which pictures share some, so that there is something to match."""
    generator = torch.Generator().manual_seed(seed)
    shared = torch.randn(max(count // 3, 1), dim, generator=generator, dtype=dtype)
    own = torch.randn(pictures, count, dim, generator=generator, dtype=dtype)
    own[:, : len(shared)] = shared + 0.1 * own[:, : len(shared)]
    return Descriptors(own)


def small_elvis(**settings: object) -> Elvis:
    """A head with random parameters, biases and norms included, as the oracles have."""
    torch.manual_seed(7)
    head = Elvis(ElvisConfig(**{"input_dim": 12, "dim": 8, **settings}))  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return head.eval()


MATCHERS = {
    "elvis": lambda: small_elvis(),
    "elvis-standardised": lambda: small_elvis(standardise=True, vote_layernorm=False),
    "elvis-scalar": lambda: small_elvis(dustbin="scalar"),
    "elvis-no-f": lambda: small_elvis(vote=False),
    "elvis-no-projection": lambda: small_elvis(projection=False, dim=12),
    "chamfer": lambda: Chamfer(),
    "chamfer-standardised": lambda: Chamfer(ChamferConfig(standardise=True)),
    "chamfer-ot": lambda: ChamferTransport(),
    "chamfer-ot-standardised": lambda: ChamferTransport(ChamferConfig(standardise=True)),
}


def draw_collection(folder: Path) -> Path:
    """Eight things of coloured tiles, each twice in `photos/`; three of them anew, darker and cut, in `queries/`."""
    (folder / "photos").mkdir()
    (folder / "queries").mkdir()
    lines = ["path,museum,year"]
    for thing in range(8):
        tiles = np.random.default_rng(thing).integers(0, 256, (8, 10, 3), dtype=np.uint8)
        picture = Image.fromarray(tiles).resize((160, 128), Image.Resampling.NEAREST)
        for view, changed in enumerate((picture, ImageEnhance.Brightness(picture).enhance(1.04))):
            changed.save(folder / "photos" / f"thing{thing}-{view}.png")
            lines.append(f"photos/thing{thing}-{view}.png,{'Met' if thing < 4 else 'Tate'},{1900 + thing}")
        if thing in (1, 4, 6):
            query = ImageEnhance.Brightness(picture).enhance(0.97)
            query.save(folder / "queries" / f"thing{thing}.jpg", quality=95)
    (folder / "facts.csv").write_text("\n".join(lines) + "\n")
    return folder
