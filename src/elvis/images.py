"""The only place that opens a picture: upright RGB, or one line that says why not."""

from __future__ import annotations

import importlib.util
import io
import logging
import stat
import threading
import warnings
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from elvis.errors import UnreadableImage
from elvis.image_files import (
    FORMATS,
    HEIC_BRANDS,
    Skipped,
    find_images,
    kind_of_file,
    shown,
    why_not_opened,
)

__all__ = [
    "FORMATS",
    "MAX_PIXELS",
    "Crop",
    "Skipped",
    "crop_box",
    "find_images",
    "open_image",
    "readable_formats",
    "shown",
    "to_pixels",
]

logger = logging.getLogger(__name__)

MAX_PIXELS = 64_000_000
"""Largest picture decoded, in pixels, unless the caller says otherwise."""

Crop = tuple[float, float, float, float]
"""A part of a picture: x, y, width, height as fractions of the upright picture."""

_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_ORIENTATION = 0x0112
_header_lock = threading.Lock()


def open_image(source: Path | str | bytes, *, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """The picture in a file (or in the bytes of one), decoded, upright and in RGB.

    EXIF and XMP orientation are applied; of an animation the first frame is taken; transparent pixels become
    white; CMYK becomes RGB without colour management; 16-bit grey is scaled to 8 bits, and integers and
    floats without a known range by their own smallest and largest value. The whole picture is decoded: a
    reduced decoding of large JPEGs would save time but give other pixels.

    Args:
        source: a path, or the content of a picture file.
        max_pixels: larger pictures are refused from their header alone, before anything is decoded.
            Pillow's own limit of 178 million stands behind it.

    Raises:
        UnreadableImage: one line with the path and the reason.

    Example:
        >>> open_image(b"GIF89a")
        Traceback (most recent call last):
        ...
        elvis.errors.UnreadableImage: picture of 6 bytes: it is damaged, or in no format that is read
    """
    if isinstance(source, bytes):
        name = f"picture of {len(source)} bytes"
        if not source:
            raise UnreadableImage(f"{name}: it is empty")
        return _decode(io.BytesIO(source), name, max_pixels)
    name = shown(source)
    try:
        status = Path(source).stat()
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableImage(f"{name}: it is {kind_of_file(status.st_mode)}, not a file")
        if status.st_size == 0:
            raise UnreadableImage(f"{name}: it is empty")
        with Path(source).open("rb") as stream:
            return _decode(stream, name, max_pixels)
    except (OSError, ValueError) as error:  # ValueError: a path with a null byte
        raise UnreadableImage(f"{name}: {why_not_opened(error)}") from error


def readable_formats() -> tuple[str, ...]:
    """Those of `FORMATS` that this installation can decode."""
    Image.init()
    if "HEIF" not in Image.OPEN and importlib.util.find_spec("pillow_heif") is not None:
        importlib.import_module("pillow_heif").register_heif_opener()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def _decode(stream: BinaryIO, name: str, max_pixels: int) -> Image.Image:
    image = _read_header(stream, name, max_pixels)
    width, height = image.size
    if width * height > max_pixels:
        raise UnreadableImage(f"{name}: {width} x {height} pixels exceed the limit of {max_pixels:,}: make it smaller")
    try:
        image.load()
        orientation = _orientation(image, name)
        image = _to_rgb(image)
        return image.transpose(_UPRIGHT[orientation]) if orientation in _UPRIGHT else image
    except Exception as error:
        # Decoders raise whatever comes to hand on damaged data: OSError, SyntaxError, struct.error …
        raise UnreadableImage(f"{name}: it is damaged or cut short ({_first_line(error)})") from error


def _read_header(stream: BinaryIO, name: str, max_pixels: int) -> Image.Image:
    formats = readable_formats()
    start = stream.read(16)
    stream.seek(0)
    try:
        # Pillow warns of large pictures, and of formats it lacks, before we can refuse them in our own words.
        with _header_lock, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Image.open(stream, formats=formats)
    except Image.DecompressionBombError as error:
        raise UnreadableImage(f"{name}: it has more pixels than the limit of {max_pixels:,}: shrink it") from error
    except UnidentifiedImageError as error:
        if start[4:8] == b"ftyp" and start[8:12] in HEIC_BRANDS and "HEIF" not in formats:
            raise UnreadableImage(f"{name}: it is HEIC: pip install pillow-heif, or convert it to JPEG") from error
        raise UnreadableImage(f"{name}: it is damaged, or in no format that is read") from error
    except Exception as error:  # as above: a plug-in's parser on a stranger's header
        raise UnreadableImage(f"{name}: its header is damaged ({_first_line(error)})") from error


def _first_line(error: Exception) -> str:
    return shown(str(error).partition("\n")[0]) or type(error).__name__


def _orientation(image: Image.Image, name: str) -> int:
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except Exception as error:  # the pixels are sound: broken side data must not cost the picture
        logger.warning("%s: its EXIF data is damaged (%s): taken as upright", name, _first_line(error))
        return 1


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I") or image.mode == "F":
        return _grey_from_numbers(np.asarray(image), image.mode).convert("RGB")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image).convert("RGB")
    return image.convert("RGB")


def _grey_from_numbers(values: np.ndarray, mode: str) -> Image.Image:
    numbers = np.nan_to_num(values.astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    low, high = float(numbers.min()), float(numbers.max())
    if mode != "F" and low >= 0 and high <= 65535:
        low, high = 0.0, 65535.0
    elif mode == "F" and low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    elif mode == "F" and low >= 0 and high <= 255:
        low, high = 0.0, 255.0
    scaled = (numbers - low) * (255.0 / max(high - low, 1e-12))
    return Image.fromarray(np.rint(scaled).astype(np.uint8))


def crop_box(size: tuple[int, int], crop: Crop | None) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of a crop in whole pixels, at least one each way.

    Args:
        size: width and height of the upright picture in pixels.
        crop: x, y, width, height as fractions of it; None is the whole picture.

    Example:
        >>> crop_box((200, 100), (0.25, 0.5, 0.5, 0.5))
        (50, 50, 150, 100)
    """
    width, height = size
    if crop is None:
        return 0, 0, width, height
    x, y, w, h = crop
    slack = 1e-6  # x + w of a crop computed from pixels may land a hair beyond 1
    if not (0 <= x < 1 and 0 <= y < 1 and w > 0 and h > 0 and x + w <= 1 + slack and y + h <= 1 + slack):
        raise ValueError(f"crop: expected x,y,w,h as fractions inside the picture, got {x:g},{y:g},{w:g},{h:g}")
    left, top = min(round(x * width), width - 1), min(round(y * height), height - 1)
    right = min(max(round((x + w) * width), left + 1), width)
    bottom = min(max(round((y + h) * height), top + 1), height)
    return left, top, right, bottom


def to_pixels(image: Image.Image, longer_side: int, patch: int, crop: Crop | None = None) -> Tensor:
    """An RGB picture, or a part of it, resized for a backbone: (3, H, W) float32, black 0 and white 1.

    The factor is `longer_side` over the longer side of the *whole* picture, also for a crop. Each side is
    then rounded to a multiple of `patch`, at least one. Resampling is antialiased bicubic on floats; it
    overshoots [0, 1] by a little at hard edges, which is kept, as in the published pipelines. A side that has
    to shrink more than sixfold is first averaged over whole blocks of pixels to three times its final size
    or more, which bounds the memory and changes the result by less than a grey level on average.

    Example:
        >>> to_pixels(Image.new("RGB", (200, 100)), longer_side=56, patch=14).shape
        torch.Size([3, 28, 56])
    """
    if longer_side < 1 or patch < 1:
        raise ValueError(f"longer_side and patch: expected positive pixels, got {longer_side} and {patch}")
    factor = longer_side / max(image.size)
    left, top, right, bottom = crop_box(image.size, crop)
    columns, rows = (max(1, round(side * factor / patch)) for side in (right - left, bottom - top))
    part = image if crop is None else image.crop((left, top, right, bottom))
    shrink = [
        max(1, side // (3 * final)) for side, final in zip(part.size, (columns * patch, rows * patch), strict=True)
    ]
    if max(shrink) > 1:
        part = part.reduce((shrink[0], shrink[1]))
    values = torch.from_numpy(np.array(part.convert("RGB"))).permute(2, 0, 1)[None].float().div_(255)
    size = (rows * patch, columns * patch)
    return torch.nn.functional.interpolate(values, size, mode="bicubic", antialias=True, align_corners=False)[0]
