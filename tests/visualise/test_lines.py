from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from elvis.visualise import correspondences, strongest_matches
from elvis.visualise.canvas import best_layout
from pair_examples import SHAPES, assert_texts_are_readable, explanation, picture


def artist(figure, label):
    return next(each for axes in figure.axes for each in axes.get_children() if each.get_label() == label)


def test_the_strongest_come_first_and_each_once():
    made = explanation()
    matches = strongest_matches(made, 30)
    strengths = [match.strength for match in matches]
    assert strengths == sorted(strengths, reverse=True)
    assert len({(match.query_index, match.gallery_index) for match in matches}) == len(matches) == 30
    assert strengths[0] == pytest.approx(float(made.refined.max()))
    for match in matches:
        i, j = match.query_index, match.gallery_index
        assert match.strength == pytest.approx(float(made.refined[0, i, j]), abs=1e-6)
        assert j == int(made.query_partners[0, i]) or i == int(made.gallery_partners[0, j])
        assert match.query_xy == pytest.approx(made.query.xy[0, i].tolist())
        assert match.gallery_xy == pytest.approx(made.gallery.xy[0, j].tolist())


def test_before_means_raw_similarity():
    made = explanation()
    strongest = strongest_matches(made, 1, stage="before")[0]
    assert strongest.strength == pytest.approx(float(made.similarity.max()))
    assert (strongest.query_index, strongest.gallery_index) == divmod(int(made.similarity.argmax()), 50)


def test_padding_is_never_drawn():
    made = explanation()
    mask = torch.arange(60) < 20
    masked = replace(made, query=replace(made.query, mask=mask[None]))
    assert {match.query_index < 20 for match in strongest_matches(masked, 500)} == {True}


@pytest.mark.parametrize("stage", ["before", "after"])
@pytest.mark.parametrize("shape", SHAPES)
def test_lines_end_where_the_matches_are(shape, stage):
    sizes = SHAPES[shape]
    made = explanation(sizes)
    pictures = picture(sizes[0]), picture(sizes[1], 1)
    figure = correspondences(made, *pictures, count=12, stage=stage, boxes=((0.1, 0.2, 0.5, 0.5), (0, 0, 1, 1)))
    lines = np.array(artist(figure, "matches").get_segments())
    assert lines.shape == (12, 2, 2)
    layout = best_layout(*sizes, (11.0, 7.0))
    for line, match in zip(lines, strongest_matches(made, 12, stage=stage)[::-1], strict=True):
        assert line[0] == pytest.approx(layout.query.point(match.query_xy))
        assert line[1] == pytest.approx(layout.gallery.point(match.gallery_xy))
    assert_texts_are_readable(figure)


def test_stronger_is_brighter():
    figure = correspondences(explanation(), picture((640, 480)), picture((600, 400)), count=9)
    brightness = artist(figure, "matches").get_colors()[:, :3] @ [0.21, 0.72, 0.07]
    assert (np.diff(brightness) >= 0).all()


def test_wide_pictures_are_stacked_and_upright_ones_stand_side_by_side():
    assert not best_layout(*SHAPES["panorama"], (11, 7)).beside
    assert best_layout(*SHAPES["upright"], (11, 7)).beside


def test_a_picture_that_is_gone_leaves_its_place():
    made = explanation(((640, 480), (480, 640)))
    figure = correspondences(made, picture((640, 480)), None)
    assert len(artist(figure, "matches").get_segments()) == 25
    assert_texts_are_readable(figure)


def test_equal_strengths_and_few_matches():
    made = explanation(counts=(1, 1))
    figure = correspondences(made, picture((40, 30)), picture((30, 40)))
    assert len(artist(figure, "matches").get_segments()) == 1
    assert_texts_are_readable(figure)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"count": 0}, "count"), ({"stage": "later"}, "stage"), ({"pair": 1}, "expected one of 1 pairs, got 1")],
)
def test_wrong_arguments(wrong, message):
    with pytest.raises(ValueError, match=message):
        strongest_matches(explanation(), **wrong)
