"""Options that several verbs share, and how their words are read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elvis.images import Crop, crop_box

IndexFolder = Annotated[Path, typer.Option("--index", "-i", help="Folder of the index.", show_default=False)]
Head = Annotated[
    str | None, typer.Option("--head", help="Trained head: a folder, or owner/name on the hub.", show_default=False)
]
Device = Annotated[str, typer.Option(help="Where to compute: cpu, cuda, cuda:1, mps …")]
AsJson = Annotated[bool, typer.Option("--json", help="Write JSON lines for machines.")]


def read_crop(text: str | None) -> Crop | None:
    """`x,y,w,h` as four fractions of the upright picture.

    Example:
        >>> read_crop("0.5,0,0.5,1")
        (0.5, 0.0, 0.5, 1.0)
        >>> read_crop("0.5,0")
        Traceback (most recent call last):
        ...
        ValueError: crop: expected four numbers x,y,w,h as fractions of the upright picture, got '0.5,0'
    """
    if text is None:
        return None
    try:
        x, y, w, h = (float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(
            f"crop: expected four numbers x,y,w,h as fractions of the upright picture, got {text!r}"
        ) from None
    crop = (x, y, w, h)
    crop_box((1000, 1000), crop)  # refuses what lies outside the picture, before a model is loaded
    return crop
