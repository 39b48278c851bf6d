"""Made pairs of pictures and their explanations, for the tests of drawings."""

from __future__ import annotations

import numpy as np
import torch
from matplotlib.text import Text
from PIL import Image

from elvis import Descriptors, Explanation

SHAPES = {
    "landscape": ((640, 480), (600, 400)),
    "upright": ((480, 640), (400, 600)),
    "mixed": ((480, 640), (640, 480)),
    "panorama": ((1800, 300), (1500, 260)),
    "tall": ((200, 1400), (640, 480)),
    "extreme": ((3000, 60), (60, 3000)),
    "tiny": ((20, 15), (15, 20)),
}


def picture(size, seed=0):
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8))
    return coarse.resize(size, Image.Resampling.BICUBIC)


def descriptors(size, count, seed=0, gain=False):
    generator = torch.Generator().manual_seed(seed)
    return Descriptors(
        torch.randn(1, count, 8, generator=generator),
        xy=torch.rand(1, count, 2, generator=generator),
        size=torch.tensor([size]),
        gain=torch.rand(1, count, generator=generator) if gain else None,
    )


def explanation(sizes=((640, 480), (600, 400)), counts=(60, 50), *, seed=0, gain=False, transport=True):
    query = descriptors(sizes[0], counts[0], seed, gain)
    gallery = descriptors(sizes[1], counts[1], seed + 1, gain)
    generator = torch.Generator().manual_seed(seed + 2)
    similarity = torch.rand(1, *counts, generator=generator) * 2 - 1
    refined = torch.softmax(similarity * 5, dim=2) / 2 if transport else similarity
    rows, columns = refined.amax(2), refined.amax(1)
    return Explanation(similarity, refined, rows, columns, query, gallery, rows.sum(1) + columns.sum(1))


def rendered(figure):
    """The figure as an array, and the pixel boxes of its texts."""
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    shown = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
    return np.asarray(figure.canvas.buffer_rgba()), [(text, text.get_window_extent(renderer)) for text in shown]


def assert_texts_are_readable(figure):
    """No text overlaps another or leaves the figure."""
    pixels, texts = rendered(figure)
    height, width = pixels.shape[:2]
    for text, box in texts:
        assert box.x0 >= -1, text.get_text()
        assert box.x1 <= width + 1, text.get_text()
        assert box.y0 >= -1, text.get_text()
        assert box.y1 <= height + 1, text.get_text()
    for k, (text, box) in enumerate(texts):
        for other, there in texts[k + 1 :]:
            assert not box.overlaps(there), (text.get_text(), other.get_text())
