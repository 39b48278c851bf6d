"""Surfaces: paper, wood, tiled textures, frames, and a made-up painting in thick strokes."""

from __future__ import annotations

import math

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageOps


def shaded(colour, factor):
    return tuple(int(min(255, channel * factor)) for channel in colour)


def paper(size, colour, seed):
    """A sheet with the faint unevenness of print."""
    rng = np.random.default_rng(seed)
    spots = Image.fromarray(rng.integers(0, 256, (size[1] // 8, size[0] // 8), dtype=np.uint8)).resize(size)
    grain = np.asarray(spots, dtype=float)[..., None] / 255 * 0.06 + 0.95
    return Image.fromarray((np.ones((size[1], size[0], 3)) * colour * grain).clip(0, 255).astype(np.uint8))


def swirls(seed):
    """A made-up painting in thick strokes along a swirling field: a look-alike for a famous one."""
    rng = np.random.default_rng(seed)
    size = (752, 600)
    sheet = paper(size, (40, 66, 120), seed)
    draw = ImageDraw.Draw(sheet)
    eyes = [(rng.uniform(80, 670), rng.uniform(60, 300), rng.choice([-1, 1])) for _ in range(5)]
    for _ in range(5200):
        x, y = rng.uniform(0, size[0]), rng.uniform(0, size[1])
        dx, dy = 1.0, 0.2
        near = 1e9
        for ex, ey, turn in eyes:
            gone = math.hypot(x - ex, y - ey) + 1
            near = min(near, gone)
            dx, dy = dx - turn * (y - ey) / gone * 90 / gone, dy + turn * (x - ex) / gone * 90 / gone
        length = rng.uniform(8, 20) / math.hypot(dx, dy)
        tone = np.array([235, 200, 90]) if near < 34 else np.array([60, 100, 170]) * rng.uniform(0.55, 1.6)
        if y > 430 + 30 * math.sin(x / 70):
            tone = np.array([44, 74, 66]) * rng.uniform(0.6, 1.5)
        draw.line((x, y, x + dx * length, y + dy * length), fill=tuple(int(v) for v in tone.clip(0, 255)), width=5)
    return sheet


def framed(picture, width=44, colour=(120, 84, 40)):
    """The picture in a wooden frame, seen from the front."""
    whole = Image.new("RGB", (picture.width + 2 * width, picture.height + 2 * width), colour)
    draw = ImageDraw.Draw(whole)
    for k in range(width):
        tone = shaded(colour, 0.7 + 0.7 * abs(math.sin(k / width * 5)))
        draw.rectangle((k, k, whole.width - 1 - k, whole.height - 1 - k), outline=tone)
    whole.paste(picture, (width, width))
    return whole


def print_of(picture, border=26):
    """A photograph on paper, with a white border."""
    whole = Image.new("RGB", (picture.width + 2 * border, picture.height + 2 * border), (244, 242, 238))
    whole.paste(picture, (border, border))
    return whole


def wood(seed, colour=(150, 106, 66), size=(1600, 1200), planks=6):
    """A table top of planks, with grain, knots and scratches."""
    rng = np.random.default_rng(seed)
    height = size[1] // planks
    rows = []
    for _ in range(planks):
        grain = np.zeros((height, size[0]))
        for fine, along, weight in ((3, 8, 0.35), (2, 40, 0.3), (1, 160, 0.25)):
            noise = rng.integers(0, 256, (height // fine, along), dtype=np.uint8)
            stretched = Image.fromarray(noise).resize((size[0], height), Image.Resampling.BICUBIC)
            grain += weight * (np.asarray(stretched, dtype=float) / 255 - 0.5)
        y, x = np.mgrid[:height, : size[0]]
        for _ in range(int(rng.integers(2, 5))):  # knots
            cx, cy, r = rng.uniform(0, size[0]), rng.uniform(0, height), rng.uniform(8, 20)
            away = np.hypot((x - cx) / 2.2, y - cy)
            grain += 0.35 * np.cos(away / 3.2) * np.exp(-away / (2.5 * r)) - 0.5 * np.exp(-((away / r) ** 2))
        row = np.asarray(colour) * (0.95 + grain[..., None]) * rng.uniform(0.85, 1.12)
        row[:4] *= 0.4
        rows.append(row)
    flat = Image.fromarray(np.concatenate(rows).clip(0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(flat)
    for _ in range(60):
        x, y = rng.uniform(0, size[0]), rng.uniform(0, size[1])
        draw.line((x, y, x + rng.uniform(-90, 90), y + rng.uniform(-30, 30)), fill=shaded(colour, 0.6), width=2)
    return flat.filter(ImageFilter.GaussianBlur(0.6))


def tinted(picture, colour):
    """A grey texture in a colour."""
    grey = np.asarray(picture.convert("L"), dtype=float)[..., None] / 150
    return Image.fromarray((grey * colour).clip(0, 255).astype(np.uint8))


def tiled(picture, across, down):
    """Side by side and one above the other, every second one mirrored so that no seam shows."""
    whole = Image.new("RGB", (picture.width * across, picture.height * down))
    for k in range(across):
        for m in range(down):
            piece = ImageOps.mirror(picture) if k % 2 else picture
            whole.paste(ImageOps.flip(piece) if m % 2 else piece, (k * picture.width, m * picture.height))
    return whole
