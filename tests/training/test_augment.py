"""Augmented views: the same for the same seed, and views of the same thing."""

import numpy as np
import pytest
from PIL import Image

from elvis.training.augment import augmented, view_seed


def scene(width=120, height=90):
    tiles = np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return Image.fromarray(tiles).resize((width, height), Image.Resampling.BICUBIC)


def test_the_seed_decides():
    views = [augmented(scene(), seed) for seed in range(20)]
    assert len({view.tobytes() for view in views}) == 20
    assert [augmented(scene(), seed).tobytes() for seed in range(20)] == [view.tobytes() for view in views]


def test_the_picture_is_left_alone():
    picture = scene()
    before = picture.tobytes()
    for seed in range(10):
        augmented(picture, seed)
    assert picture.tobytes() == before


@pytest.mark.parametrize("size", [(1, 1), (3, 200), (640, 480), (17, 16)])
def test_pictures_of_any_shape(size):
    for seed in range(5):
        view = augmented(scene(*size), seed)
        assert view.mode == "RGB"
        assert min(view.size) >= 1
        assert max(view.size) <= max(16, *size)


def test_views_resemble_their_picture_more_than_its_mirror_image():
    # Mean colours of a coarse grid: crude, but a mirrored or upside-down view would fail.
    def coarse(image):
        values = np.asarray(image.resize((6, 6), Image.Resampling.BOX), np.float32)
        values = values.reshape(36, 3) - values.reshape(36, 3).mean(axis=0)
        return values.ravel() / np.linalg.norm(values)

    gradient = np.zeros((90, 120, 3), np.uint8)
    gradient[..., 0] = np.linspace(0, 255, 120)[None]
    gradient[..., 1] = np.linspace(0, 255, 90)[:, None]
    picture = Image.fromarray(gradient)
    same, mirrored = [], []
    for seed in range(30):
        view = coarse(augmented(picture, seed))
        same.append(view @ coarse(picture))
        mirrored.append(view @ coarse(picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)))
    assert np.mean(same) > np.mean(mirrored) + 0.4


def test_seeds_differ_by_picture_view_and_seed():
    seeds = {view_seed(sha, view, seed) for sha in ("a", "b") for view in (1, 2) for seed in (0, 1)}
    assert len(seeds) == 8
    assert all(0 <= seed < 2**64 for seed in seeds)
