"""The learned functions of a head, with what one pair of pictures made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from elvis.values import Explanation
from elvis.visualise.canvas import DOWN, FAINT, INK, UP, inner_ticks, new_figure, place_axes, write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def vote_curve(
    explanation: Explanation,
    vote: Callable[[Tensor], Tensor],
    calibrate: Callable[[Tensor], Tensor] | None = None,
    *,
    pair: int = 0,
) -> Figure:
    """What a match of each strength is worth (f), and what a score of each size means (g).

    The dots are the descriptors of this pair, those of the query blue and those of the found picture orange.

    Args:
        explanation: of one or more pairs of pictures.
        vote: strength to vote, as `model.vote`.
        calibrate: score to probability, both (K,); where given, a second panel shows it and this pair's score on it.
        pair: which pair.

    Example:
        >>> from elvis import Descriptors
        >>> side, same = Descriptors(torch.eye(9)[None]), torch.eye(9)[None]
        >>> votes = torch.ones(1, 9)
        >>> figure = vote_curve(Explanation(same, same, votes, votes, side, side, torch.tensor([18.0])), torch.sqrt)
        >>> figure.axes[0].get_xlabel()
        'strength of the match after transport'
    """
    panels = 1 if calibrate is None else 2
    figure = new_figure(5.6 * panels + 0.2, 4.3)
    axes = _panel(figure, 0, "f: strength to vote")
    strengths = torch.linspace(0, 1, 401)
    with torch.no_grad():
        worth = vote(strengths).double().numpy()
    axes.plot(strengths.numpy(), worth, color=INK, linewidth=1.6, label="f")
    sides = (
        ("query", explanation.query.mask, explanation.query_strengths, explanation.query_votes, UP, "o"),
        (
            "found picture",
            explanation.gallery.mask,
            explanation.gallery_strengths,
            explanation.gallery_votes,
            DOWN,
            "^",
        ),
    )
    for name, mask, strength, votes, colour, marker in sides:
        real = mask[pair if len(mask) > 1 else 0].cpu()
        x, y = (values[pair].detach().cpu()[real].double().numpy() for values in (strength, votes))
        axes.scatter(x, y, s=14, color=colour, marker=marker, alpha=0.35, linewidths=0, label=name, zorder=3)
    axes.set_xlim(-0.02, 1.02)
    axes.set_xticks(np.linspace(0, 1, 6))
    axes.set_xlabel("strength of the match after transport", fontsize=9)
    axes.set_ylabel("vote", fontsize=9)
    axes.legend(fontsize=8, frameon=False)
    if calibrate is not None:
        _calibration(_panel(figure, 1, "g: score to probability"), explanation, calibrate, pair)
    return figure


def _calibration(axes: Axes, explanation: Explanation, calibrate: Callable[[Tensor], Tensor], pair: int) -> None:
    score = float(explanation.score[pair])
    scores = torch.linspace(0, max(2 * score, 1.0), 401)
    with torch.no_grad():
        chance = calibrate(scores).double().numpy()
        here = float(calibrate(torch.tensor([score]))[0])
    axes.plot(scores.numpy(), chance, color=INK, linewidth=1.6, label="g")
    axes.scatter([score], [here], s=44, color=DOWN, zorder=3, label=f"this pair: {here:.2f}")
    axes.set_xlim(0, float(scores[-1]))
    axes.set_xticks(inner_ticks(0, float(scores[-1]), 6))
    axes.set_ylim(-0.03, 1.03)
    axes.set_xlabel("score", fontsize=9)
    axes.set_ylabel("probability of the same thing", fontsize=9)
    axes.legend(fontsize=8, frameon=False)


def _panel(figure: Figure, place: int, title: str) -> Axes:
    left = 0.75 + 5.6 * place
    axes = place_axes(figure, left, 0.5, 4.6, 3.2)
    axes.set_axis_on()
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.tick_params(labelsize=8, length=2, colors=FAINT)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.set_yticks(np.linspace(0, 1, 6))
    axes.set_ylim(-0.03, 1.03)
    write(figure, left, 0.16, title, size=11)
    return axes
