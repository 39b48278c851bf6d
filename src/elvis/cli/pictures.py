"""The pictures that `elvis search --explain` and `--sheet` save."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image

    from elvis.images import Crop
    from elvis.search import Searcher, SearchResult

logger = logging.getLogger(__name__)


def save_explanations(
    searcher: Searcher, query: Sequence[Path], crop: Crop | None, result: SearchResult, folder: Path
) -> None:
    """One page a hit, named by rank and picture; for several views, from the first."""
    from elvis.comparison import Comparison
    from elvis.images import open_image
    from elvis.visualise import save

    if searcher.model is None:
        raise ValueError("explain: expected a method that matches descriptors, got global")
    view = searcher.describe(query[0], crop)
    place = folder / _name(query[0].stem)
    for hit in result:
        explanation = searcher.explain(view, hit.path)
        compared = Comparison.from_explanation(
            explanation, open_image(query[0]), picture_or_none(hit.path), result.method
        )
        save(compared.sheet(), place / f"{hit.rank:02d}-{_name(Path(hit.path).stem)}.png")


def save_sheet(query: Sequence[Path], result: SearchResult, path: Path) -> None:
    """The query and its hits on one page."""
    from elvis.images import open_image
    from elvis.visualise import contact_sheet, save

    pictures = [picture_or_none(hit.path) for hit in result]
    figure = contact_sheet(open_image(query[0]), result.hits, pictures, headline=f"ranked by {result.method}")
    save(figure, path)


def sheet_place(sheet: Path, query: Sequence[Path], single: bool) -> Path:
    """Where the sheet of a query goes: the given file, or one a query in the given folder."""
    return sheet if single else sheet / f"{_name(query[0].stem)}.png"


def picture_or_none(path: str) -> Image.Image | None:
    """The indexed picture, or None where it is gone or cannot be read any more, which is logged."""
    from elvis.errors import UnreadableImage
    from elvis.images import open_image

    try:
        return open_image(path)
    except UnreadableImage as error:
        logger.warning("drawn without the picture: %s", error)
        return None


def _name(stem: str) -> str:
    """A stem that any file system takes."""
    return re.sub(r"[^\w.-]", "_", stem.encode("utf-8", "replace").decode())[:80] or "picture"
