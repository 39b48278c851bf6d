"""What was ignored, as heat over both pictures, and the similarity matrices before and after transport."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from elvis.boxes import Box, patch_step
from elvis.values import Descriptors, Explanation
from elvis.visualise.canvas import (
    ROOM,
    Frame,
    Pair,
    best_layout,
    fit_axes,
    new_figure,
    one_panel,
    place_axes,
    positions,
    show_picture,
    upright_size,
    write,
)
from elvis.visualise.lines import colour_bar

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap, Normalize
    from matplotlib.figure import Figure

HEAT = "inferno"
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Ignored:
    """How much each place of a pair of pictures was ignored, and what the number is.

    Attributes:
        query: (rows, columns) on all patches, or (N,) at the stored positions.
        gallery: likewise.
        title: what the heat shows.
        low: the number that is drawn darkest.
        high: the one that is drawn brightest.
    """

    query: Floats
    gallery: Floats
    title: str
    low: float
    high: float


def dustbin_maps(
    explanation: Explanation,
    query_picture: Image.Image | None,
    gallery_picture: Image.Image | None,
    *,
    query_gain: Tensor | None = None,
    gallery_gain: Tensor | None = None,
    query_crop: Box | None = None,
    pair: int = 0,
) -> Figure:
    """Heat over both pictures: bright is what the match ignored.

    With learned gains on all patches, that is the gain h itself. Without them it is what the explanation knows, at
    the stored positions only: the gain there, or for methods without gains the share of a descriptor that went to
    the dust-bin, or for those without transport how little its best match is like it. The title says which.

    Args:
        explanation: of one or more pairs of pictures.
        query_picture: upright; None where it is gone.
        gallery_picture: likewise.
        query_gain: (rows, columns) dust-bin gain of all patches of the query.
        gallery_gain: likewise; both are given or none.
        query_crop: the part of the query that `query_gain` covers, where it was searched by a crop.
        pair: which pair.

    Example:
        >>> import torch
        >>> from elvis import Descriptors
        >>> side = Descriptors(torch.eye(2)[None], xy=torch.tensor([[[0.1, 0.5], [0.9, 0.5]]]))
        >>> plan, votes = torch.eye(2)[None] * 0.5, torch.tensor([[0.5, 0.5]])
        >>> explanation = Explanation(torch.eye(2)[None], plan, votes, votes, side, side, torch.tensor([2.0]))
        >>> red = Image.new("RGB", (40, 30), "red")
        >>> type(dustbin_maps(explanation, red, red)).__name__
        'Figure'
    """
    ignored = what_was_ignored(explanation, query_gain, gallery_gain, pair)
    layout = best_layout(
        upright_size(query_picture, explanation.query, pair),
        upright_size(gallery_picture, explanation.gallery, pair),
        ROOM,
    )
    figure, axes, bar = one_panel(layout, ignored.title)
    pictures = (query_picture, gallery_picture)
    colours, scale_of = draw_ignored(axes, layout, pictures, explanation, ignored, pair, query_crop)
    colour_bar(figure, bar, colours, scale_of)
    return figure


def what_was_ignored(
    explanation: Explanation, query_gain: Tensor | None, gallery_gain: Tensor | None, pair: int
) -> Ignored:
    """The best that is known about what the match ignored."""
    if (query_gain is None) != (gallery_gain is None):
        raise ValueError("query_gain, gallery_gain: expected both or none, got one")
    if query_gain is not None and gallery_gain is not None:
        both: list[Floats] = []
        for name, gain in (("query_gain", query_gain), ("gallery_gain", gallery_gain)):
            if gain.ndim != 2:
                raise ValueError(f"{name}: expected shape (rows, columns), got {tuple(gain.shape)}")
            both.append(_numbers(gain))
        title = "dust-bin gain on all patches: bright is ignored"
        return _ranged(both[0], both[1], title)
    query, gallery = explanation.query, explanation.gallery
    if query.gain is not None and gallery.gain is not None:
        places = (_row(query, pair), _row(gallery, pair))
        title = "dust-bin gain at the stored positions: bright is ignored"
        return _ranged(_numbers(query.gain[places[0]]), _numbers(gallery.gain[places[1]]), title)
    refined = explanation.refined[pair]
    if torch.equal(refined, explanation.similarity[pair]):
        title = "1 − similarity of the best match, at the stored positions: bright is like nothing there"
        real = query.mask[_row(query, pair)][:, None] & gallery.mask[_row(gallery, pair)][None]
        known = refined.masked_fill(~real, -torch.inf)
        return _ranged(_numbers(1 - known.amax(1)), _numbers(1 - known.amax(0)), title)
    title = "share that went to the dust-bin, at the stored positions: bright is ignored"
    # Transport keeps padding at zero; what little a real descriptor keeps is what tells them apart.
    return _ranged(_numbers(1 - refined.sum(1)).clip(0, 1), _numbers(1 - refined.sum(0)).clip(0, 1), title)


def _ranged(query: Floats, gallery: Floats, title: str) -> Ignored:
    """One range for both pictures, without the few extremes that would take all colours for themselves."""
    both = np.concatenate([query.ravel(), gallery.ravel()])
    low, high = np.quantile(both[np.isfinite(both)], (0.02, 0.98))
    return Ignored(query, gallery, title, float(low), float(high))


def _row(descriptors: Descriptors, pair: int) -> int:
    return pair if len(descriptors) > 1 else 0


def _numbers(values: Tensor) -> Floats:
    return values.detach().double().cpu().numpy()


def draw_ignored(
    axes: Axes,
    layout: Pair,
    pictures: tuple[Image.Image | None, Image.Image | None],
    explanation: Explanation,
    ignored: Ignored,
    pair: int,
    query_crop: Box | None = None,
) -> tuple[Colormap, Normalize]:
    """Both pictures in grey under their heat, on one axes; returns the colours and their scale."""
    from matplotlib import colormaps
    from matplotlib.colors import Normalize

    high = ignored.high if ignored.high > ignored.low else ignored.low + 1
    scale_of, colours = Normalize(ignored.low, high), colormaps[HEAT]
    whole = (0.0, 0.0, 1.0, 1.0)
    sides = (
        ("query", explanation.query, pictures[0], layout.query, ignored.query, query_crop or whole),
        ("gallery", explanation.gallery, pictures[1], layout.gallery, ignored.gallery, whole),
    )
    for name, descriptors, picture, frame, values, part in sides:
        show_picture(axes, picture, frame, dimmed=True)
        if values.ndim == 2:
            left, top = frame.point(part[:2])
            right, bottom = frame.point((part[0] + part[2], part[1] + part[3]))
            axes.imshow(values, extent=(left, right, bottom, top), cmap=colours, norm=scale_of, alpha=0.72, zorder=1)
        else:
            real = descriptors.mask[_row(descriptors, pair)].cpu().numpy()
            _draw_patches(axes, positions(name, descriptors, pair)[real], values[real], frame, colours, scale_of)
    fit_axes(axes, layout)
    return colours, scale_of


def _draw_patches(axes: Axes, xy: Floats, values: Floats, frame: Frame, colours: Colormap, scale_of: Normalize) -> None:
    """A coloured patch at each stored position, with a gap to the next where the picture is seen."""
    from matplotlib.collections import PolyCollection

    width, height = patch_step(xy) * (frame.width, frame.height) * 0.92
    centres = xy * (frame.width, frame.height) + (frame.left, frame.top)
    corners = np.array([[-width, -height], [width, -height], [width, height], [-width, height]]) / 2
    shapes: Any = centres[:, None] + corners
    axes.add_collection(
        PolyCollection(shapes, facecolors=colours(scale_of(values)), alpha=0.8, linewidths=0, zorder=1, label="patches")
    )


def matrices(explanation: Explanation, count: int = 100, *, pair: int = 0) -> Figure:
    """Similarity of the strongest descriptors of both pictures, before and after transport.

    The query's are sorted by vote; the gallery's follow their partners, so that good matches lie on the diagonal.

    Args:
        explanation: of one or more pairs of pictures.
        count: descriptors of each picture at the most.
        pair: which pair.

    Example:
        >>> import torch
        >>> from elvis import Descriptors
        >>> side, same = Descriptors(torch.eye(9)[None]), torch.eye(9)[None]
        >>> votes = torch.linspace(0, 1, 9)[None]
        >>> figure = matrices(Explanation(same, same, votes, votes, side, side, torch.tensor([9.0])), 4)
        >>> [image.get_array().shape for axes in figure.axes for image in axes.images]
        [(4, 4), (4, 4)]
    """
    from matplotlib import colormaps
    from matplotlib.colors import Normalize

    if count < 1:
        raise ValueError(f"count: expected at least 1, got {count}")
    rows, columns = _strongest_first(explanation, count, pair)
    size = 4.6
    figure = new_figure(2 * size + 2.6, size + 1.15)
    both = (
        ("before transport: cosine similarity", explanation.similarity),
        ("after transport", explanation.refined),
    )
    for k, (title, values) in enumerate(both):
        shown = _numbers(values[pair])[np.ix_(rows, columns)]
        left = 0.55 + k * (size + 1.15)
        axes = place_axes(figure, left, 0.5, size, size)
        axes.set_axis_on()
        scale_of = Normalize(float(shown.min()), max(float(shown.max()), float(shown.min()) + 1e-6))
        axes.imshow(shown, cmap="viridis", norm=scale_of, aspect="auto", interpolation="nearest")
        axes.set_xticks(range(0, len(columns), 20))
        axes.set_yticks(range(0, len(rows), 20))
        axes.set_xlabel("descriptors of the found picture, as their partners", fontsize=9)
        if k == 0:
            axes.set_ylabel("descriptors of the query, strongest vote first", fontsize=9)
        axes.tick_params(labelsize=8, length=2)
        write(figure, left, 0.18, title, size=11)
        colour_bar(figure, (left + size + 0.1, 0.5, size), colormaps["viridis"], scale_of)
    return figure


def _strongest_first(explanation: Explanation, count: int, pair: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    query_real = np.flatnonzero(explanation.query.mask[_row(explanation.query, pair)].cpu().numpy())
    gallery_real = np.flatnonzero(explanation.gallery.mask[_row(explanation.gallery, pair)].cpu().numpy())
    query_votes = _numbers(explanation.query_votes[pair])[query_real]
    gallery_votes = _numbers(explanation.gallery_votes[pair])[gallery_real]
    rows = query_real[np.argsort(-query_votes, kind="stable")[:count]]
    refined = _numbers(explanation.refined[pair])[np.ix_(rows, gallery_real)]
    partners = gallery_real[refined.argmax(1)]
    others = gallery_real[np.argsort(-gallery_votes, kind="stable")]
    columns = list(dict.fromkeys([*partners.tolist(), *others.tolist()]))[: min(count, len(gallery_real))]
    return rows, np.array(columns, dtype=np.int64)
