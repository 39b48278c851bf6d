"""Boxes of the match against made pairs whose truth is known."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from elvis import Descriptors, Explanation
from elvis.boxes import Box, _distances, _nearest, agreeing_matches, match_boxes
from elvis.extract import ExtractionSettings, Extractor
from elvis.images import open_image
from elvis.models import load_model

QUERY_SIZE = (420, 420)
SCENE_SIZE = (640, 480)
PATCH = 14


def grid(size, patch=PATCH):
    """Patch centres of a picture in pixels, row by row."""
    columns, rows = size[0] // patch, size[1] // patch
    x, y = np.meshgrid((np.arange(columns) + 0.5) / columns * size[0], (np.arange(rows) + 0.5) / rows * size[1])
    return np.column_stack([x.ravel(), y.ravel()])


def side(points, size, keep):
    xy = torch.as_tensor(points[keep] / np.asarray(size), dtype=torch.float32)[None]
    return Descriptors(torch.ones(1, len(keep), 2), xy=xy, size=torch.tensor([size]))


def made(to_scene, *, size=SCENE_SIZE, query_size=QUERY_SIZE, keep=600, strays=0.2, low=0.0, seed=0, object_box=None):
    """An explanation in which the query (or `object_box` of it, in pixels) appears in the scene.

    `to_scene` maps (K, 2) query pixels to scene pixels. A share `strays` of the matches ends just anywhere.
    """
    rng = np.random.default_rng(seed)
    query_points, scene_points = grid(query_size), grid(size)
    query_keep = rng.permutation(len(query_points))[:keep]
    scene_keep = rng.permutation(len(scene_points))[:keep]
    landed = to_scene(query_points[query_keep])
    off = np.linalg.norm(landed[:, None] - scene_points[scene_keep][None], axis=2) / PATCH
    x0, y0, x1, y1 = object_box or (0, 0, *query_size)
    px, py = query_points[query_keep].T
    on_object = (px >= x0) & (px <= x1) & (py >= y0) & (py <= y1)
    strength = np.exp(-(off**2)) * rng.uniform(0.3, 1, off.shape) * on_object[:, None] * (off < 1)
    strength[rng.random(len(strength)) < strays] = 0
    strength[:, rng.random(strength.shape[1]) < strays] = 0
    refined = np.maximum(strength, low + rng.random(off.shape) ** 30 * (1 - low) * 0.6)
    return explained(refined, side(query_points, query_size, query_keep), side(scene_points, size, scene_keep))


def explained(refined, query, gallery):
    matrix = torch.as_tensor(refined, dtype=torch.float32)[None]
    rows, columns = matrix.amax(2), matrix.amax(1)
    return Explanation(matrix, matrix, rows, columns, query, gallery, rows.sum(1) + columns.sum(1))


def similarity(scale, degrees, centre, query_size=QUERY_SIZE):
    angle = math.radians(degrees)
    turn = scale * np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    return lambda points: (points - np.asarray(query_size) / 2) @ turn.T + np.asarray(centre)


def true_box(to_scene, size=SCENE_SIZE, corners=(0, 0, *QUERY_SIZE)) -> Box:
    x0, y0, x1, y1 = corners
    landed = to_scene(np.array([[x0, y0], [x1, y0], [x1, y1], [x0, y1]], dtype=float)) / np.asarray(size)
    (left, top), (right, bottom) = landed.min(0).clip(0, 1), landed.max(0).clip(0, 1)
    return left, top, right - left, bottom - top


def overlap(one: Box | None, other: Box) -> float:
    """Intersection over union."""
    if one is None:
        return 0.0
    width = min(one[0] + one[2], other[0] + other[2]) - max(one[0], other[0])
    height = min(one[1] + one[3], other[1] + other[3]) - max(one[1], other[1])
    both = max(width, 0) * max(height, 0)
    return both / (one[2] * one[3] + other[2] * other[3] - both)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("scale", "degrees", "centre"),
    [
        (1.0, 0, (320, 240)),
        (0.5, 0, (200, 300)),
        (0.25, 0, (500, 120)),  # a fortieth of the scene
        (0.5, 90, (300, 200)),
        (0.5, -90, (300, 200)),
        (0.6, 180, (300, 240)),
        (0.7, 30, (300, 240)),
        (0.33, 225, (430, 300)),
    ],
)
def test_object_in_a_scene(scale, degrees, centre, seed):
    to_scene = similarity(scale, degrees, centre)
    found, in_query = match_boxes(made(to_scene, seed=seed))
    assert overlap(found, true_box(to_scene)) > 0.7
    assert overlap(in_query, (0, 0, 1, 1)) > 0.75 or scale >= 1


@pytest.mark.parametrize("strays", [0.0, 0.3, 0.5])
def test_strays_do_not_stretch_the_box(strays):
    to_scene = similarity(0.5, 10, (200, 250))
    found, _ = match_boxes(made(to_scene, strays=strays, low=0.2))
    assert overlap(found, true_box(to_scene)) > 0.7


def test_part_of_the_query_only():
    """The thing fills a corner of the query too: both boxes are small."""
    to_scene = similarity(0.8, -20, (300, 200))
    corner = (210, 210, 420, 420)
    found, in_query = match_boxes(made(to_scene, object_box=corner, keep=1200))
    assert overlap(found, true_box(to_scene, corners=corner)) > 0.7
    assert overlap(in_query, (0.5, 0.5, 0.5, 0.5)) > 0.7


def test_seen_from_the_side():
    """A strong perspective is no similarity transform; growing along the surface still covers the thing."""

    def to_scene(points):
        x, y = points.T / 420 - 0.5
        depth = 1 + 0.5 * x
        return np.column_stack([320 + 260 * x / depth, 240 + 260 * y / depth])

    found, in_query = match_boxes(made(to_scene, keep=1000))
    assert overlap(found, true_box(to_scene)) > 0.7
    assert overlap(in_query, (0, 0, 1, 1)) > 0.7


@pytest.mark.parametrize("size", [(640, 480), (480, 640), (1400, 280)])
def test_whole_picture_matches(size):
    found, in_query = match_boxes(made(lambda points: points, size=size, query_size=size, keep=2000))
    assert overlap(found, (0, 0, 1, 1)) > 0.9
    assert overlap(in_query, (0, 0, 1, 1)) > 0.9


@pytest.mark.parametrize("seed", range(8))
def test_no_box_where_matches_agree_on_nothing(seed):
    rng = np.random.default_rng(seed)
    query = side(grid(QUERY_SIZE), QUERY_SIZE, rng.permutation(900)[:600])
    gallery = side(grid(SCENE_SIZE), SCENE_SIZE, rng.permutation(1530)[:600])
    assert match_boxes(explained(rng.random((600, 600)), query, gallery)) == (None, None)


def test_one_popular_patch_is_no_match():
    """Everything matching one and the same descriptor is what plain similarity does on a blank wall."""
    rng = np.random.default_rng(0)
    refined = rng.random((600, 600)) * 0.1
    refined[:, 17] += 0.8
    refined[33] += 0.8
    query = side(grid(QUERY_SIZE), QUERY_SIZE, rng.permutation(900)[:600])
    gallery = side(grid(SCENE_SIZE), SCENE_SIZE, rng.permutation(1530)[:600])
    assert match_boxes(explained(refined, query, gallery)) == (None, None)


def test_agreeing_matches_are_the_true_ones():
    to_scene = similarity(0.5, 10, (200, 250))
    explanation = made(to_scene, strays=0.3)
    agreement = agreeing_matches(explanation)
    assert agreement is not None
    query = explanation.query.xy[0].numpy()[agreement.query_index] * QUERY_SIZE
    scene = explanation.gallery.xy[0].numpy()[agreement.gallery_index] * SCENE_SIZE
    assert (np.linalg.norm(to_scene(query) - scene, axis=1) < 2.5 * PATCH).all()
    assert agreement.evidence > 15


def test_padding_batch_and_half_precision_change_nothing():
    pairs = [made(similarity(0.5, 10, (200, 250))), made(similarity(0.4, 80, (420, 200)), keep=500, seed=3)]
    alone = [match_boxes(each) for each in pairs]
    both = Explanation(
        similarity=padded([each.similarity for each in pairs]),
        refined=padded([each.refined for each in pairs]),
        query_votes=padded([each.query_votes for each in pairs]),
        gallery_votes=padded([each.gallery_votes for each in pairs]),
        query=Descriptors.stack([each.query for each in pairs]),
        gallery=Descriptors.stack([each.gallery for each in pairs]),
        score=torch.cat([each.score for each in pairs]),
    )
    assert [match_boxes(both, 0), match_boxes(both, 1)] == alone
    halved = replace(
        pairs[0],
        query=replace(pairs[0].query, xy=pairs[0].query.xy.half()),
        gallery=replace(pairs[0].gallery, xy=pairs[0].gallery.xy.half()),
    )
    assert match_boxes(halved)[0] == pytest.approx(alone[0][0], abs=0.03)


def padded(parts):
    shape = [max(part.shape[axis] for part in parts) for axis in range(1, parts[0].ndim)]
    whole = torch.full((len(parts), *shape), 0.97)  # what stands at padding must not matter
    for place, part in zip(whole, parts, strict=True):
        place[tuple(slice(length) for length in part.shape[1:])] = part[0]
    return whole


def test_one_query_against_many():
    one = made(similarity(0.5, 10, (200, 250)))
    twice = Explanation(
        *(torch.cat([value, value]) for value in (one.similarity, one.refined, one.query_votes, one.gallery_votes)),
        query=one.query,
        gallery=Descriptors.stack([one.gallery, one.gallery]),
        score=torch.cat([one.score, one.score]),
    )
    assert match_boxes(twice, 1) == match_boxes(one)


def test_says_what_is_missing():
    explanation = made(similarity(0.5, 10, (200, 250)))
    with pytest.raises(ValueError, match="expected descriptors with xy"):
        match_boxes(replace(explanation, query=replace(explanation.query, xy=None)))
    with pytest.raises(ValueError, match="expected one of 1 pairs, got 1"):
        match_boxes(explanation, 1)


DEMO = Path(__file__).parents[1] / "demo"


# A photographed box in a heap, and a rendered tin on a shelf; boxes measured by hand on the pictures.
PLACES = [
    ("cookies", "cookies-in-scene", (0.19, 0.42, 0.33, 0.34), (0, 0, 1, 1)),
    pytest.param("tea", "tea-shelf", (0.41, 0.22, 0.39, 0.65), (0.14, 0.12, 0.73, 0.81), marks=pytest.mark.slow),
]


@pytest.mark.weights
@pytest.mark.parametrize(("query", "found", "in_found", "in_query"), PLACES)
def test_boxes_on_pictures(query, found, in_found, in_query):
    names = (f"queries/{query}", f"pictures/{found}", "pictures/astronaut")
    one, other, unrelated = Extractor(ExtractionSettings(longer_side=392)).extract(
        open_image(DEMO / f"{name}.jpg") for name in names
    )
    model = load_model("chamfer-ot", standardise=True)
    boxes = match_boxes(model.explain(one, other))
    assert overlap(boxes[0], in_found) > 0.6
    assert overlap(boxes[1], in_query) > 0.6
    assert match_boxes(model.explain(one, unrelated)) == (None, None)


def test_nearest_by_rank_are_those_of_a_stable_sort():
    points = np.random.default_rng(0).integers(0, 12, (300, 2)) / 12  # a grid: most distances come many times
    away = _distances(points, points)
    for ranks in (range(4), range(12, 60, 12), range(298, 310)):
        expected = np.argsort(away.round(9), axis=1, kind="stable")[:, ranks.start : ranks.stop : ranks.step]
        assert np.array_equal(_nearest(away, ranks), expected)
