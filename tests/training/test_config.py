"""Recipes: the published numbers, TOML, and what is refused."""

import dataclasses

import pytest

from elvis.errors import TrainingError, UnknownName
from elvis.training.config import PRESETS, TrainConfig, preset, read_config


def test_the_published_recipe_has_the_published_numbers():
    recipe = preset("published")
    assert (recipe.epochs, recipe.triplets, recipe.lr, recipe.weight_decay) == (10, 200, 5e-4, 5e-4)
    assert (recipe.warmup, recipe.warmup_start) == (0.1, 1 / 3)
    assert (recipe.neighbours, recipe.min_positives, recipe.min_negatives, recipe.sharpness) == (300, 5, 5, 3)
    assert (recipe.loss, recipe.descriptors, recipe.descriptor_choice) == ("bce", (100, 399), "strongest")
    assert (recipe.augmented_share, recipe.style_jitter, recipe.clip) == (0, 0, None)
    head = recipe.head_config(768)
    assert (head.dim, head.temperature, head.rounds, head.calibrate) == (128, 0.1, 10, "sum")
    assert head.vote_layernorm
    assert head.gain_tanh


def test_the_small_recipe_is_that_of_the_probes():
    recipe = preset("small")
    assert (recipe.steps, recipe.triplets, recipe.augmented_share, recipe.descriptors) == (400, 28, 0.5, (32, 128))
    assert (recipe.lr, recipe.projection_lr, recipe.loss, recipe.batch_negatives) == (2e-3, 3e-4, "listwise", 4)
    assert (recipe.projection_start, recipe.vote_start, recipe.style_share) == ("whitened", "affine", 0.7)
    assert not recipe.head_config(384).vote_layernorm


@pytest.mark.parametrize("name", PRESETS)
def test_a_recipe_survives_json(name):
    import json

    recipe = preset(name)
    assert TrainConfig.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe


def test_every_field_is_documented():
    for field in dataclasses.fields(TrainConfig):
        assert f"        {field.name}: " in (TrainConfig.__doc__ or ""), field.name


def test_toml_changes_what_it_names(tmp_path):
    file = tmp_path / "recipe.toml"
    file.write_text('preset = "published"\nepochs = 3\n[head]\ndim = 64\n[extraction]\nlonger_side = 140\n')
    recipe = read_config(file, preset("small"))
    assert (recipe.epochs, recipe.steps, recipe.lr) == (3, None, 5e-4)
    assert recipe.head_config(384).dim == 64
    assert recipe.extraction.longer_side == 140
    file.write_text("epochs = 2\n")
    assert (read_config(file, preset("small")).epochs, read_config(file, preset("small")).steps) == (2, None)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("stepz = 3", UnknownName, "unknown training setting 'stepz'"),
        ("[head]\ndims = 3", UnknownName, "unknown head setting 'dims'"),
        ("[extraction]\nsize = 3", UnknownName, "unknown extraction setting 'size'"),
        ('preset = "huge"', UnknownName, "unknown training preset 'huge'"),
        ("steps = [", TrainingError, "is no TOML file"),
        ('lr = "fast"', ValueError, "training settings"),
        ("head = 3", ValueError, "head: expected a table"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path, text, error, message):
    (tmp_path / "r.toml").write_text(text)
    with pytest.raises(error, match=message):
        read_config(tmp_path / "r.toml", preset("small"))
    with pytest.raises(TrainingError, match="cannot be read"):
        read_config(tmp_path / "no.toml", preset("small"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 2, "steps": 3}, "epochs and steps: expected one of them, got 2 and 3"),
        ({"epochs": None}, "epochs and steps"),
        ({"lr": -1.0}, "lr: expected a number above 0"),
        ({"lr": float("nan")}, "lr: expected a number above 0"),
        ({"augmented_share": 0.5}, "views: expected at least 1"),
        ({"augmented_share": 1.5}, r"augmented_share: expected a share in \[0, 1\]"),
        ({"holdout": 1.0}, r"holdout: expected a share in \[0, 1\)"),
        ({"descriptors": [5, 3]}, "descriptors: expected smallest and largest"),
        ({"loss": "hinge"}, "loss: expected one of bce, listwise"),
        ({"vote_start": "affine"}, "vote_start: affine needs a head with vote and without vote_layernorm"),
        ({"head": {"input_dim": 3}}, "head: expected no input_dim"),
        ({"head": {"rounds": 0}}, "rounds: expected at least 1"),
        ({"head": {"projection": False}, "projection_start": "whitened"}, "projection_start: whitened needs"),
        ({"seed": -1}, "seed: expected a number of at least 0"),
    ],
)
def test_what_makes_no_sense_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig().changed(changes)


def test_a_head_without_projection_is_as_wide_as_its_input():
    assert TrainConfig(head={"projection": False}).head_config(48).dim == 48
