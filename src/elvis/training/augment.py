"""Augmented views of a picture: what another photograph of the same thing might look like.

Crop, perspective and rotation, light, colour, blur, noise and clutter, each drawn from seed, picture and number of the
view alone. Pillow and numpy only.
"""

from __future__ import annotations

import hashlib

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter

REVISION = 1
"""Raised when the same seed begins to give other views: kept descriptors of old ones are then left alone."""


def view_seed(content_sha256: str, view: int, seed: int) -> int:
    """The seed of one view of one picture.

    Example:
        >>> view_seed("ab", 1, 0) == view_seed("ab", 1, 0) != view_seed("ab", 2, 0)
        True
    """
    digest = hashlib.sha256(f"{content_sha256} {view} {seed} {REVISION}".encode()).digest()
    return int.from_bytes(digest[:8], "little")


def augmented(image: Image.Image, seed: int) -> Image.Image:
    """Another view of an upright RGB picture; the same seed gives the same pixels.

    Example:
        >>> picture = Image.new("RGB", (64, 48), "red")
        >>> augmented(picture, 5).tobytes() == augmented(picture, 5).tobytes()
        True
    """
    rng = np.random.default_rng(seed)
    view = _warped(image, rng)
    view = _lit(view, rng)
    if rng.random() < 0.5:
        view = _cluttered(view, rng)
    if rng.random() < 0.4:
        view = view.filter(ImageFilter.GaussianBlur(rng.uniform(0.2, 0.004 * max(view.size) + 0.3)))
    return _noisy(view, rng) if rng.random() < 0.3 else view


def _warped(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """A part of the picture, seen from a slightly other place; never a mirror image, which is another thing."""
    width, height = image.size
    area = rng.uniform(0.35, 1.0)
    stretch = np.exp(rng.uniform(-0.25, 0.25))
    w, h = (min(1.0, float(np.sqrt(area) * factor)) for factor in (stretch, 1 / stretch))
    left, top = rng.uniform(0, 1 - w), rng.uniform(0, 1 - h)
    corners = np.array([[left, top], [left, top + h], [left + w, top + h], [left + w, top]])
    angle = np.deg2rad(rng.normal(0, 8))
    centre = corners.mean(axis=0)
    ratio = np.array([width, height]) / max(width, height)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    corners = ((corners - centre) * ratio) @ turn.T / ratio + centre
    corners += rng.uniform(-0.08, 0.08, corners.shape) * [w, h]
    size = (max(16, round(width * w)), max(16, round(height * h)))
    quad = tuple(float(x) for x in (corners * [width, height]).ravel())
    edge = tuple(int(x) for x in np.asarray(image.resize((1, 1), Image.Resampling.BOX)).ravel())
    return image.transform(size, Image.Transform.QUAD, quad, Image.Resampling.BICUBIC, fillcolor=edge)


def _lit(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Other light: brightness, contrast, saturation, colour of the light, a gradient across the picture."""
    for enhancer, deviation in (
        (ImageEnhance.Brightness, 0.3),
        (ImageEnhance.Contrast, 0.25),
        (ImageEnhance.Color, 0.35),
    ):
        image = enhancer(image).enhance(float(np.exp(rng.normal(0, deviation))))
    pixels = np.asarray(image, np.float32) / 255
    pixels = pixels ** float(np.exp(rng.normal(0, 0.2))) * np.exp(rng.normal(0, 0.1, 3)).astype(np.float32)
    if rng.random() < 0.5:
        y, x = np.mgrid[0 : image.height, 0 : image.width].astype(np.float32)
        angle, strength = rng.uniform(0, 2 * np.pi), rng.uniform(0.2, 0.6)
        slope = np.cos(angle) * (x / image.width - 0.5) + np.sin(angle) * (y / image.height - 0.5)
        pixels = pixels * np.exp(strength * slope)[:, :, None]
    return Image.fromarray(np.clip(pixels * 255 + 0.5, 0, 255).astype(np.uint8))


def _cluttered(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Things in front: a few filled shapes of some colour, and pieces of the picture in the wrong place."""
    image = image.copy()
    draw = ImageDraw.Draw(image)
    for _ in range(int(rng.integers(1, 4))):
        w, h = (max(2, int(rng.uniform(0.08, 0.3) * side)) for side in image.size)
        x, y = int(rng.integers(0, image.width - w + 1)), int(rng.integers(0, image.height - h + 1))
        kind = rng.random()
        colour = tuple(int(c) for c in rng.integers(0, 256, 3))
        if kind < 0.35:
            draw.rectangle((x, y, x + w, y + h), fill=colour)
        elif kind < 0.65:
            draw.ellipse((x, y, x + w, y + h), fill=colour)
        else:
            u, v = int(rng.integers(0, image.width - w + 1)), int(rng.integers(0, image.height - h + 1))
            image.paste(image.crop((u, v, u + w, v + h)).transpose(Image.Transpose.ROTATE_180), (x, y))
    return image


def _noisy(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    noise = rng.normal(0, rng.uniform(2, 10), (image.height, image.width, 3))
    return Image.fromarray(np.clip(np.asarray(image, np.float32) + noise, 0, 255).astype(np.uint8))
