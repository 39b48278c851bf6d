"""The strongest matches of a pair, as lines from picture to picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from PIL import Image

from elvis.boxes import Box
from elvis.values import Explanation
from elvis.visualise.canvas import (
    FAINT,
    ROOM,
    Pair,
    best_layout,
    draw_box,
    fit_axes,
    inner_ticks,
    one_panel,
    place_axes,
    positions,
    show_picture,
    upright_size,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap, Normalize
    from matplotlib.figure import Figure

Stage = Literal["before", "after"]
"""Raw similarity, or votes after transport."""
Boxes = tuple[Box | None, Box | None]
"""In the found picture and in the query, as `match_boxes` gives them."""

TITLES = {"before": "before transport: raw similarity", "after": "after transport: votes"}


@dataclass(frozen=True, slots=True)
class Match:
    """One line: from a place in the query to one in the gallery picture, as fractions, with its strength."""

    query_index: int
    gallery_index: int
    query_xy: tuple[float, float]
    gallery_xy: tuple[float, float]
    strength: float


def strongest_matches(
    explanation: Explanation, count: int = 25, *, stage: Stage = "after", pair: int = 0
) -> list[Match]:
    """The `count` strongest matches found from either side, strongest first; one found from both counts once.

    Args:
        explanation: of one or more pairs of pictures.
        count: how many at the most.
        stage: "before" takes raw similarities, "after" votes.
        pair: which pair.

    Example:
        >>> import torch
        >>> from elvis import Descriptors
        >>> side = Descriptors(torch.eye(2)[None], xy=torch.tensor([[[0.1, 0.5], [0.9, 0.5]]]))
        >>> same, votes = torch.eye(2)[None], torch.tensor([[0.5, 1.0]])
        >>> explanation = Explanation(same, same, votes, votes, side, side, torch.tensor([3.0]))
        >>> [(match.query_index, match.strength) for match in strongest_matches(explanation)]
        [(1, 1.0), (0, 0.5)]
    """
    if stage not in TITLES:
        raise ValueError(f"stage: expected 'before' or 'after', got {stage!r}")
    if count < 1:
        raise ValueError(f"count: expected at least 1, got {count}")
    if not 0 <= pair < len(explanation.gallery):
        raise ValueError(f"pair: expected one of {len(explanation.gallery)} pairs, got {pair}")
    query_xy = positions("query", explanation.query, pair)
    gallery_xy = positions("gallery", explanation.gallery, pair)
    query_real = _real(explanation.query.mask, pair)
    gallery_real = _real(explanation.gallery.mask, pair)
    chosen = explanation.refined if stage == "after" else explanation.similarity
    matrix = chosen[pair].detach().double().cpu().numpy()[np.ix_(query_real, gallery_real)]
    rows = np.concatenate([np.arange(len(query_real)), matrix.argmax(0)])
    columns = np.concatenate([matrix.argmax(1), np.arange(len(gallery_real))])
    if stage == "after":
        votes = (explanation.query_votes[pair][query_real], explanation.gallery_votes[pair][gallery_real])
        strength = np.concatenate([side.detach().double().cpu().numpy() for side in votes])
    else:
        strength = matrix[rows, columns]
    matches: dict[tuple[int, int], Match] = {}
    for k in np.argsort(-strength, kind="stable"):
        i, j = int(query_real[rows[k]]), int(gallery_real[columns[k]])
        if (i, j) not in matches:
            start, end = query_xy[i], gallery_xy[j]
            matches[i, j] = Match(
                i, j, (float(start[0]), float(start[1])), (float(end[0]), float(end[1])), float(strength[k])
            )
        if len(matches) == count:
            break
    return list(matches.values())


def _real(mask: Any, pair: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.flatnonzero(mask[pair if len(mask) > 1 else 0].cpu().numpy())


def correspondences(
    explanation: Explanation,
    query_picture: Image.Image | None,
    gallery_picture: Image.Image | None,
    *,
    count: int = 25,
    stage: Stage = "after",
    boxes: Boxes | None = None,
    pair: int = 0,
) -> Figure:
    """Both pictures with the strongest matches as lines, brighter where stronger.

    The pictures stand side by side, or one above the other where that shows them larger.

    Args:
        explanation: of one or more pairs of pictures.
        query_picture: upright; None where it is gone: a grey sheet stands for it.
        gallery_picture: likewise.
        count: how many lines.
        stage: "before" draws raw similarities, "after" votes.
        boxes: in the found picture and in the query, as `match_boxes` gives them; drawn where given.
        pair: which pair.

    Example:
        >>> import torch
        >>> from elvis import Descriptors
        >>> side = Descriptors(torch.eye(2)[None], xy=torch.tensor([[[0.1, 0.5], [0.9, 0.5]]]))
        >>> same, votes = torch.eye(2)[None], torch.tensor([[0.5, 1.0]])
        >>> explanation = Explanation(same, same, votes, votes, side, side, torch.tensor([3.0]))
        >>> red = Image.new("RGB", (40, 30), "red")
        >>> type(correspondences(explanation, red, red)).__name__
        'Figure'
    """
    layout = best_layout(
        upright_size(query_picture, explanation.query, pair),
        upright_size(gallery_picture, explanation.gallery, pair),
        ROOM,
    )
    matches = strongest_matches(explanation, count, stage=stage, pair=pair)
    number = "the strongest match" if len(matches) == 1 else f"the {len(matches)} strongest matches"
    figure, axes, bar = one_panel(layout, f"{number} {TITLES[stage]}")
    colours, scale_of = draw_pair(axes, layout, query_picture, gallery_picture, matches, boxes)
    colour_bar(figure, bar, colours, scale_of)
    return figure


def draw_pair(
    axes: Axes,
    layout: Pair,
    query_picture: Image.Image | None,
    gallery_picture: Image.Image | None,
    matches: list[Match],
    boxes: Boxes | None,
) -> tuple[Colormap, Normalize]:
    """Pictures, boxes and lines on one axes; returns the colours of the lines and their scale."""
    from matplotlib.collections import LineCollection
    from matplotlib.colors import Normalize

    show_picture(axes, query_picture, layout.query)
    show_picture(axes, gallery_picture, layout.gallery)
    fit_axes(axes, layout)
    if boxes is not None:
        for frame, box in ((layout.gallery, boxes[0]), (layout.query, boxes[1])):
            if box is not None:
                draw_box(axes, frame, box)
    strengths = [match.strength for match in matches]
    low, high = (min(strengths), max(strengths)) if strengths else (0.0, 1.0)
    # Equal strengths are all the strongest.
    scale_of = Normalize(low if high - low > 1e-6 else low - 1, high)
    colours = line_colours()
    # The strongest are drawn last, on top.
    weakest_first = matches[::-1]
    lines = [[layout.query.point(m.query_xy), layout.gallery.point(m.gallery_xy)] for m in weakest_first]
    drawn = [colours(scale_of(m.strength)) for m in weakest_first]
    axes.add_collection(LineCollection(lines, colors="black", linewidths=2.6, alpha=0.55, zorder=6))
    axes.add_collection(LineCollection(lines, colors=drawn, linewidths=1.3, zorder=7, label="matches"))
    ends = np.array(lines, dtype=np.float64).reshape(-1, 2)
    axes.scatter(
        ends[:, 0], ends[:, 1], s=16, c=np.repeat(drawn, 2, axis=0), edgecolors="black", linewidths=0.7, zorder=8,
        label="ends",
    )  # fmt: skip
    return colours, scale_of


def line_colours() -> Colormap:
    """Purple over orange to yellow: lighter is stronger."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    return ListedColormap(colormaps["plasma"](np.linspace(0.22, 0.98, 256)))


def colour_bar(
    figure: Figure,
    place: tuple[float, float, float],
    colours: Colormap,
    scale_of: Normalize,
) -> None:
    """A small upright bar at (left, top, height) in inches."""
    from matplotlib.cm import ScalarMappable

    left, top, height = place
    axes = place_axes(figure, left, top + 0.06, 0.13, height - 0.06)
    axes.set_axis_on()
    bar = figure.colorbar(ScalarMappable(scale_of, colours), cax=axes)
    low, high = float(scale_of.vmin or 0.0), float(scale_of.vmax or 0.0)
    bar.set_ticks(inner_ticks(low, high, 4 if height > 1.2 else 2))
    bar.ax.tick_params(labelsize=8, length=2, colors=FAINT)
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
