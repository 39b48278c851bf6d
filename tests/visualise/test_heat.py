from __future__ import annotations

import numpy as np
import pytest
import torch

from elvis.visualise import dustbin_maps, matrices
from elvis.visualise.heat import what_was_ignored
from pair_examples import SHAPES, assert_texts_are_readable, explanation, picture


def titles(figure):
    return " ".join(text.get_text() for text in figure.texts)


def patches(figure):
    return [each for axes in figure.axes for each in axes.get_children() if each.get_label() == "patches"]


@pytest.mark.parametrize("shape", SHAPES)
def test_gain_on_all_patches_covers_both_pictures(shape):
    sizes = SHAPES[shape]
    gains = torch.rand(12, 16) * 2 - 1, torch.rand(9, 14) * 2 - 1
    figure = dustbin_maps(
        explanation(sizes), picture(sizes[0]), picture(sizes[1]), query_gain=gains[0], gallery_gain=gains[1]
    )
    heat = [image for image in figure.axes[0].images if image.get_array().shape in ((12, 16), (9, 14))]
    underneath = [image for image in figure.axes[0].images if image not in heat]
    assert len(heat) == 2
    for image, gain, under in zip(heat, gains, underneath, strict=True):
        assert np.array_equal(image.get_array(), gain.double())
        assert image.get_extent() == under.get_extent()
    assert heat[0].norm is heat[1].norm, "both pictures share one scale"
    assert "all patches" in titles(figure)
    assert_texts_are_readable(figure)


def test_heat_of_a_crop_lies_on_the_crop():
    gain = torch.rand(6, 8)
    figure = dustbin_maps(
        explanation(), picture((640, 480)), picture((600, 400)), query_gain=gain, gallery_gain=gain,
        query_crop=(0.5, 0.25, 0.25, 0.5),
    )  # fmt: skip
    under, heat = figure.axes[0].images[:2]
    left, right, bottom, top = under.get_extent()
    width, height = right - left, bottom - top
    expected = (left + 0.5 * width, left + 0.75 * width, top + 0.75 * height, top + 0.25 * height)
    assert heat.get_extent() == pytest.approx(expected)


def test_without_dense_gains_the_stored_positions_say_it():
    figure = dustbin_maps(explanation(gain=True), picture((640, 480)), picture((600, 400)))
    assert "gain at the stored positions" in titles(figure)
    assert [len(each.get_paths()) for each in patches(figure)] == [60, 50]


def test_without_gains_the_share_that_went_to_the_dust_bin():
    made = explanation()
    ignored = what_was_ignored(made, None, None, 0)
    assert ignored.query == pytest.approx(1 - made.refined[0].sum(1).numpy(), abs=1e-6)
    assert ignored.gallery == pytest.approx((1 - made.refined[0].sum(0).numpy()).clip(0, 1), abs=1e-6)
    assert "share that went to the dust-bin" in ignored.title


def test_without_transport_how_unlike_the_best_match_is():
    made = explanation(transport=False)
    ignored = what_was_ignored(made, None, None, 0)
    assert ignored.query == pytest.approx(1 - made.similarity[0].amax(1).numpy(), abs=1e-6)
    assert "similarity of the best match" in ignored.title


def test_bright_is_ignored():
    figure = dustbin_maps(explanation(), picture((640, 480)), picture((600, 400)))
    ignored = what_was_ignored(explanation(), None, None, 0)
    colours = patches(figure)[0].get_facecolors()[:, :3] @ [0.21, 0.72, 0.07]
    order = np.argsort(ignored.query)
    assert (np.diff(colours[order]) >= -1e-9).all()


def test_a_picture_that_is_gone():
    figure = dustbin_maps(explanation(), picture((640, 480)), None)
    assert [len(each.get_paths()) for each in patches(figure)] == [60, 50]
    assert_texts_are_readable(figure)


def test_gains_come_in_pairs_and_as_grids():
    sizes = picture((640, 480)), picture((600, 400))
    with pytest.raises(ValueError, match="expected both or none"):
        dustbin_maps(explanation(), *sizes, query_gain=torch.zeros(2, 2))
    with pytest.raises(ValueError, match=r"query_gain: expected shape \(rows, columns\), got \(4,\)"):
        dustbin_maps(explanation(), *sizes, query_gain=torch.zeros(4), gallery_gain=torch.zeros(2, 2))


def test_matrices_put_good_matches_on_the_diagonal():
    made = explanation(counts=(120, 120))
    plan = torch.zeros(1, 120, 120)
    partner = torch.randperm(120, generator=torch.Generator().manual_seed(0))
    plan[0, torch.arange(120), partner] = torch.linspace(0.1, 0.9, 120)
    votes = plan.amax(2), plan.amax(1)
    figure = matrices(type(made)(plan, plan, *votes, made.query, made.gallery, votes[0].sum(1) * 2), 100)
    before, after = (np.asarray(image.get_array()) for axes in figure.axes for image in axes.images)
    assert before.shape == after.shape == (100, 100)
    assert np.diag(after) == pytest.approx(np.linspace(0.9, 0.1, 120)[:100], abs=1e-6)
    assert_texts_are_readable(figure)


def test_matrices_of_few_descriptors():
    figure = matrices(explanation(counts=(7, 5)), 100)
    assert [image.get_array().shape for axes in figure.axes for image in axes.images] == [(7, 5), (7, 5)]
    with pytest.raises(ValueError, match="count: expected at least 1, got 0"):
        matrices(explanation(), 0)
