"""The ranking strip: what re-ranking did to the pictures that should be found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PIL import Image

from elvis.visualise.canvas import DOWN, FAINT, INK, UP, Frame, new_figure, place_axes, show_picture, write

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Positive:
    """A picture that should be found: upright, None where it is gone, and how many wrong ones stood ahead of it.

    Example:
        >>> Positive(None, 12, 0).gain
        12
    """

    picture: Image.Image | None
    wrong_before: int
    wrong_after: int

    @property
    def gain(self) -> int:
        """How many wrong pictures it has left behind."""
        return self.wrong_before - self.wrong_after


def ranking_strip(
    query_picture: Image.Image,
    positives: Sequence[Positive],
    *,
    precision_before: float,
    precision_after: float,
    count: int = 8,
) -> Figure:
    """A query with its change of average precision, and its positives, those that gained most first.

    Above each positive stands the number of wrong pictures ahead of it, before → after re-ranking.

    Args:
        query_picture: upright.
        positives: all of them.
        precision_before: average precision by global vector alone, in [0, 1].
        precision_after: the same after re-ranking.
        count: positives shown; where there are more, half from the top and half from the bottom.

    Example:
        >>> red = Image.new("RGB", (40, 30), "red")
        >>> figure = ranking_strip(red, [Positive(red, 7, 0)], precision_before=0.125, precision_after=1.0)
        >>> [text.get_text() for text in figure.texts]
        ['AP 12.5 → 100.0', 'query', '7 → 0']
    """
    if count < 1:
        raise ValueError(f"count: expected at least 1, got {count}")
    ordered = sorted(positives, key=lambda each: (-each.gain, each.wrong_after))
    if len(ordered) > count:
        last = count // 2
        ordered = ordered[: count - last] + ordered[len(ordered) - last :]
    side, step = 1.6, 1.72
    figure = new_figure(0.4 + side + 0.25 + step * max(len(ordered), 1), side + 0.85)
    _cell(figure, 0.2, side, query_picture)
    change = precision_after - precision_before
    headline = f"AP {100 * precision_before:.1f} → {100 * precision_after:.1f}"
    _over(figure, 0.2, side, headline, UP if change > 0 else DOWN if change < 0 else FAINT)
    write(figure, 0.2 + side / 2, 0.45 + side + 0.08, "query", size=9, ha="center", color=INK)
    for k, each in enumerate(ordered):
        left = 0.2 + side + 0.25 + k * step
        _cell(figure, left, side, each.picture)
        colour = UP if each.gain > 0 else DOWN if each.gain < 0 else FAINT
        _over(figure, left, side, f"{each.wrong_before} → {each.wrong_after}", colour)
    return figure


def _over(figure: Figure, left: float, side: float, text: str, colour: str) -> None:
    write(figure, left + side / 2, 0.15, text, size=9.5, ha="center", color=colour, weight="bold")


def _cell(figure: Figure, left: float, side: float, picture: Image.Image | None) -> None:
    axes = place_axes(figure, left, 0.45, side, side)
    width, height = (1.0, 1.0) if picture is None else (n / max(picture.size) for n in picture.size)
    show_picture(axes, picture, Frame((1 - width) / 2, (1 - height) / 2, width, height))
    axes.set_xlim(0, 1)
    axes.set_ylim(1, 0)
    if picture is None:
        axes.text(0.5, 0.5, "picture is gone", ha="center", va="center", fontsize=8, color=INK)
