"""From a place to a head on disk, without a backbone: published files have their descriptors with them."""

import json
import pickle

import numpy as np
import pytest

from elvis import load_model
from elvis.errors import TrainingError, WeightsError
from elvis.models import Elvis, ElvisConfig
from elvis.training.fit import fit, load_head, recipe_for
from elvis.training.loop import train
from elvis.training.run_folder import saved_run
from training_examples import same_weights, tiny_config, toy_examples


@pytest.fixture
def published(tmp_path):
    """The toy pictures in the published layout."""
    h5py = pytest.importorskip("h5py", reason="the extra `research` is not installed")
    examples, folder = toy_examples(views=0), tmp_path / "gldv2"
    folder.mkdir()
    table = np.zeros((len(examples.labels), 14, 21), np.float16)
    lines = []
    for picture, row in enumerate(examples.views[:, 0]):
        table[picture, :, 5:] = examples.rows.vectors(row)
        lines.append(f"train/{picture}.jpg,{examples.labels[picture]},640,480")
    (folder / "train.txt").write_text("\n".join(lines) + "\n")
    with h5py.File(folder / "dinov2_local.hdf5", "w") as file:
        file["features"] = table
    near = examples.neighbours
    planes = np.stack([near.similarities, near.ids.astype(np.float32)])
    (folder / "nn_dinov2.pkl").write_bytes(pickle.dumps(planes))
    return folder


def test_a_head_and_what_it_brought(published, tmp_path):
    config, head = tiny_config(steps=30), tmp_path / "head"
    fitted = fit(published, head, config, tensorboard=False)
    assert (fitted.pictures, fitted.objects) == (60, 12)
    loaded = load_model("elvis", head)
    assert same_weights(loaded.state_dict(), fitted.trained.head.state_dict())
    assert loaded.config.extraction == {}  # nothing is known of how these descriptors were made
    assert loaded.config.card["trained_on"] == "gldv2"
    report = json.loads((head / "training" / "report.json").read_text())
    assert report["map"]["elvis"] == round(100 * fitted.trained.map, 2)
    assert report["gain"]["global"]["value"] == pytest.approx(
        report["map"]["elvis"] - report["map"]["global"], abs=0.02
    )
    assert fitted.best_hand_made == max((name for name in report["map"] if "@" in name), key=report["map"].get)
    assert not list((head / "training").glob("head"))
    # The same without interruption, by hand.
    again = fit(published, tmp_path / "again", config, tensorboard=False)
    assert same_weights(again.trained.head.state_dict(), loaded.state_dict())


def test_a_place_is_not_taken_twice(published, tmp_path):
    config, head = tiny_config(steps=2), tmp_path / "head"
    with pytest.raises(TrainingError, match="holds no unfinished training: leave --resume out"):
        fit(published, head, config, resume=True)
    fit(published, head, config, tensorboard=False)
    with pytest.raises(TrainingError, match="holds a head already: name another folder, or add --overwrite"):
        fit(published, head, config)
    (head / "config.json").unlink()
    with pytest.raises(TrainingError, match="holds an unfinished training: go on with --resume, or add --overwrite"):
        fit(published, head, config)
    resumed = fit(published, head, saved_run(head).config, resume=True, tensorboard=False)
    assert (head / "config.json").is_file()
    other = fit(published, head, tiny_config(steps=3), overwrite=True, tensorboard=False)
    assert not same_weights(other.trained.last.state_dict(), resumed.trained.last.state_dict())
    (tmp_path / "file").write_text("")
    with pytest.raises(TrainingError, match="is a file: name a folder"):
        fit(published, tmp_path / "file", config)


def test_what_a_run_was_started_with_is_remembered(published, tmp_path):
    config = tiny_config(steps=2)
    fit(published, tmp_path / "head", config, tensorboard=False)
    run = saved_run(tmp_path / "head")
    assert (run.place, run.config, run.start, run.self_supervised) == (str(published), config, None, False)
    (tmp_path / "head" / "training" / "settings.json").write_text("{")
    with pytest.raises(TrainingError, match="is damaged: train anew with --overwrite"):
        saved_run(tmp_path / "head")
    with pytest.raises(TrainingError, match="holds no unfinished training"):
        saved_run(tmp_path / "no")


def test_a_recipe_takes_over_what_a_head_cannot_change(tmp_path):
    settings = tiny_config().extraction.to_dict() | {"longer_side": 140}
    start = Elvis(ElvisConfig(input_dim=16, dim=4, rounds=3, temperature=0.2, extraction=settings))
    recipe = recipe_for(start, tiny_config())
    config = recipe.head_config(16)
    assert (config.dim, config.rounds, config.temperature, config.vote_layernorm) == (4, 3, 0.2, True)
    assert recipe.extraction.longer_side == 140
    more = train(toy_examples(), recipe.changed({"steps": 1}), start=start)
    assert more.head.config.dim == 4
    with pytest.raises(TrainingError, match="does not say how its descriptors are extracted"):
        recipe_for(Elvis(ElvisConfig(input_dim=16, dim=4)), tiny_config())
    with pytest.raises(WeightsError):
        load_head(tmp_path / "no")


def test_a_full_disk_leaves_the_old_head(published, tmp_path, monkeypatch):
    fit(published, tmp_path / "head", tiny_config(steps=2), tensorboard=False)
    before = (tmp_path / "head" / "model.safetensors").read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Elvis, "save_pretrained", full)
    with pytest.raises(
        TrainingError, match="cannot be written .No space left on device.: make room, then run again with"
    ):
        fit(published, tmp_path / "head", tiny_config(steps=3), overwrite=True, tensorboard=False)
    assert (tmp_path / "head" / "model.safetensors").read_bytes() == before
