"""Whole pages: everything about one pair of pictures, and a query with what was found."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from PIL import Image
from torch import Tensor

from elvis.boxes import Box
from elvis.values import Explanation, Hit
from elvis.visualise.canvas import (
    DOWN,
    FAINT,
    INK,
    UP,
    Frame,
    Pair,
    draw_box,
    lay_out,
    new_figure,
    place_axes,
    safe_text,
    show_picture,
    smaller_area,
    upright_size,
    write,
)
from elvis.visualise.heat import draw_ignored, what_was_ignored
from elvis.visualise.lines import TITLES, Boxes, colour_bar, draw_pair, strongest_matches

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHEET = (15.0, 9.0)
"""Room for the three panels of a match sheet, in inches."""
PANEL_HEAD, BAR = 0.58, 0.85


def match_sheet(
    explanation: Explanation,
    query_picture: Image.Image | None,
    gallery_picture: Image.Image | None,
    *,
    headline: str = "",
    boxes: Boxes | None = None,
    query_gain: Tensor | None = None,
    gallery_gain: Tensor | None = None,
    query_crop: Box | None = None,
    count: int = 25,
    pair: int = 0,
) -> Figure:
    """All about one pair on a page: matches before and after transport, what was ignored, and the score.

    Args:
        explanation: of one or more pairs of pictures.
        query_picture: upright; None where it is gone: a grey sheet stands for it.
        gallery_picture: likewise.
        headline: goes above, for instance the method and the global similarity; the score is written below it.
        boxes: in the found picture and in the query, as `match_boxes` gives them.
        query_gain: (rows, columns) dust-bin gain of all patches of the query, see `dustbin_maps`.
        gallery_gain: likewise.
        query_crop: the part of the query that `query_gain` covers, where it was searched by a crop.
        count: how many lines a panel.
        pair: which pair.

    Example:
        >>> import torch
        >>> from elvis import Descriptors
        >>> side = Descriptors(torch.eye(2)[None], xy=torch.tensor([[[0.1, 0.5], [0.9, 0.5]]]))
        >>> plan, votes = torch.eye(2)[None] * 0.5, torch.tensor([[0.5, 0.5]])
        >>> explanation = Explanation(torch.eye(2)[None], plan, votes, votes, side, side, torch.tensor([2.0]))
        >>> red = Image.new("RGB", (40, 30), "red")
        >>> type(match_sheet(explanation, red, red, headline="chamfer-ot")).__name__
        'Figure'
    """
    sizes = (
        upright_size(query_picture, explanation.query, pair),
        upright_size(gallery_picture, explanation.gallery, pair),
    )
    (across, down), layout = _best_grid(*sizes)
    scale = min((SHEET[0] / across - BAR) / layout.width, (SHEET[1] / down - PANEL_HEAD - 0.1) / layout.height)
    width, height = max(layout.width * scale, 3.6), max(layout.height * scale, 0.9)
    top = 0.8
    figure = new_figure(max(across * (width + BAR) + 0.2, 8.0), top + down * (height + PANEL_HEAD + 0.1) + 0.05)
    write(figure, 0.2, 0.16, safe_text(headline) or "match of two pictures", size=14, weight="bold")
    write(figure, 0.2, 0.52, _score_line(explanation, pair, boxes), size=10.5, color=FAINT)
    for k in range(3):
        left = 0.2 + (k % across) * (width + BAR)
        above = top + (k // across) * (height + PANEL_HEAD + 0.1)
        axes = place_axes(figure, left, above + PANEL_HEAD - 0.1, width, height)
        if k < 2:
            stage = "before" if k == 0 else "after"
            matches = strongest_matches(explanation, count, stage=stage, pair=pair)
            shown = boxes if stage == "after" else None
            colours, scale_of = draw_pair(axes, layout, query_picture, gallery_picture, matches, shown)
            title = TITLES[stage]
        else:
            ignored = what_was_ignored(explanation, query_gain, gallery_gain, pair)
            pictures = (query_picture, gallery_picture)
            colours, scale_of = draw_ignored(axes, layout, pictures, explanation, ignored, pair, query_crop)
            title = ignored.title
        _panel_title(figure, left, above + PANEL_HEAD - 0.16, title, width + BAR - 0.2)
        axes.set_anchor("NW")
        bar_left = left + layout.width * scale + 0.1
        colour_bar(figure, (bar_left, above + PANEL_HEAD - 0.1, min(height, 2.2)), colours, scale_of)
    return figure


def _panel_title(figure: Figure, left: float, bottom: float, title: str, width: float) -> None:
    """A title of one line or two, never wider than its panel, that ends at `bottom`."""
    size = 10.0
    lines = textwrap.wrap(title, max(20, int(width * 72 / (size * 0.56))))
    write(figure, left, bottom, "\n".join(lines), size=size, va="bottom", linespacing=1.25)


def _best_grid(query: tuple[float, float], gallery: tuple[float, float]) -> tuple[tuple[int, int], Pair]:
    """Panels across and down, and the layout of the pictures in each, that show the pictures largest."""
    best: tuple[tuple[int, int], Pair] | None = None
    largest = -math.inf
    for across, down in ((3, 1), (1, 3), (2, 2)):
        room = (SHEET[0] / across - BAR, SHEET[1] / down - PANEL_HEAD - 0.1)
        for beside in (True, False):
            pair = lay_out(query, gallery, beside=beside)
            area = smaller_area(pair, room)
            if area > largest * 1.001:
                best, largest = ((across, down), pair), area
    assert best is not None  # the loops are never empty
    return best


def _score_line(explanation: Explanation, pair: int, boxes: Boxes | None) -> str:
    score = float(explanation.score[pair])
    query, gallery = explanation.query.counts, explanation.gallery.counts
    counted = int(query[pair if len(query) > 1 else 0]), int(gallery[pair if len(gallery) > 1 else 0])
    line = f"score {score:.2f} from {counted[0]} + {counted[1]} descriptors, mean vote {score / sum(counted):.3f}"
    if boxes is None:
        return line
    if boxes[0] is None or boxes[1] is None:
        return f"{line} · too few matches agree on a place for a box"
    return f"{line} · box covers {_percent(boxes[1])} of the query, {_percent(boxes[0])} of the found picture"


def _percent(box: Box) -> str:
    return f"{box[2] * box[3]:.0%}"


def contact_sheet(
    query_picture: Image.Image,
    hits: Sequence[Hit],
    pictures: Sequence[Image.Image | None],
    *,
    headline: str = "",
    columns: int = 5,
) -> Figure:
    """A query and what was found, best first: rank, score, rank by global vector alone, and the box of the match.

    Args:
        query_picture: upright.
        hits: in their order.
        pictures: the found pictures in the same order, upright; None where one is gone.
        headline: goes above, for instance the method that ranked.
        columns: pictures in a row.

    Example:
        >>> red = Image.new("RGB", (40, 30), "red")
        >>> figure = contact_sheet(red, [Hit("a.jpg", 1, 12.5, 3, 0.7)], [red])
        >>> [text.get_text() for text in figure.texts][1:]
        ['query', '1', 'score 12.50', 'was 3 ▲', 'a.jpg']
    """
    if len(hits) != len(pictures):
        raise ValueError(f"pictures: expected one for each of {len(hits)} hits, got {len(pictures)}")
    if columns < 1:
        raise ValueError(f"columns: expected at least 1, got {columns}")
    cell, text, top = 2.3, 0.62, 0.6
    columns = min(columns, max(1, len(hits)))
    rows = max(1, math.ceil(len(hits) / columns))
    query_width = cell * 1.25
    shape = _shape(query_picture)
    height = max(rows * (cell + text), query_width * shape[1] + 0.4)
    figure = new_figure(max(0.4 + query_width + columns * (cell + 0.15), 6.0), top + height)
    write(figure, 0.2, 0.16, safe_text(headline) or "what was found", size=13, weight="bold")
    _thumbnail(figure, 0.2, top, query_width, query_picture, next((hit.query_box for hit in hits), None))
    write(figure, 0.2, top + query_width * shape[1] + 0.06, "query", size=10)
    for k, (hit, picture) in enumerate(zip(hits, pictures, strict=True)):
        left = 0.4 + query_width + (k % columns) * (cell + 0.15)
        above = top + (k // columns) * (cell + text)
        _thumbnail(figure, left, above, cell, picture, hit.box, bottom=True)
        _describe(figure, left, above + cell + 0.05, cell, hit)
    return figure


def _describe(figure: Figure, left: float, top: float, cell: float, hit: Hit) -> None:
    write(figure, left, top, str(hit.rank), size=12, weight="bold")
    write(figure, left + 0.42, top + 0.025, f"score {hit.score:.2f}", size=9)
    change = hit.rank_before - hit.rank
    mark, colour = (" ▲", UP) if change > 0 else (" ▼", DOWN) if change < 0 else (" =", FAINT)
    write(figure, left + cell, top + 0.025, f"was {hit.rank_before}{mark}", size=9, color=colour, ha="right")
    name = PurePath(hit.path).name or hit.path
    write(figure, left, top + 0.25, safe_text(name, int(cell * 72 / 5.0)), size=8, color=FAINT)


def _shape(picture: Image.Image | None) -> tuple[float, float]:
    """Width and height with the longer side 1; a square where the picture is gone."""
    if picture is None:
        return 1.0, 1.0
    longer = max(picture.size)
    return picture.width / longer, picture.height / longer


def _thumbnail(
    figure: Figure,
    left: float,
    top: float,
    side: float,
    picture: Image.Image | None,
    box: Box | None,
    *,
    bottom: bool = False,
) -> None:
    """A picture in a square of `side` inches, at its top or its bottom, with its box."""
    width, height = _shape(picture)
    frame = Frame(0, 0, width, height)
    above = top + (1 - height) * side if bottom else top
    axes = place_axes(figure, left + (1 - width) * side / 2, above, width * side, height * side)
    show_picture(axes, picture, frame)
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    if picture is None:
        axes.text(0.5, 0.5, "picture is gone", ha="center", va="center", fontsize=9, color=INK)
    elif box is not None:
        draw_box(axes, frame, box, width=1.6)
