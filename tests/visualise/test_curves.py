from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from elvis.visualise import vote_curve
from pair_examples import assert_texts_are_readable, explanation


def test_curve_and_this_pairs_descriptors():
    made = explanation(counts=(60, 50))
    made = replace(made, query_votes=made.query_strengths.sqrt(), gallery_votes=made.gallery_strengths.sqrt())
    figure = vote_curve(made, torch.sqrt)
    axes = figure.axes[0]
    x, y = axes.lines[0].get_data()
    assert y == pytest.approx(np.sqrt(x), abs=1e-6)
    dots = [np.asarray(each.get_offsets()) for each in axes.collections]
    assert [len(each) for each in dots] == [60, 50]
    for each in dots:
        assert each[:, 1] == pytest.approx(np.sqrt(each[:, 0]), abs=1e-6)
    assert_texts_are_readable(figure)


def test_padding_has_no_dot():
    made = explanation(counts=(60, 50))
    masked = replace(made, query=replace(made.query, mask=(torch.arange(60) < 20)[None]))
    assert len(vote_curve(masked, torch.sqrt).axes[0].collections[0].get_offsets()) == 20


def test_probability_of_this_score():
    made = explanation()
    score = float(made.score)
    figure = vote_curve(made, torch.sqrt, lambda scores: torch.sigmoid(scores - score))
    assert len(figure.axes) == 2
    assert figure.axes[1].get_legend_handles_labels()[1] == ["g", "this pair: 0.50"]
    (here,) = np.asarray(figure.axes[1].collections[0].get_offsets())
    assert here == pytest.approx([score, 0.5])
    assert_texts_are_readable(figure)
