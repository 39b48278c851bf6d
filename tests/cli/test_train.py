"""`elvis train` from photographs to a head that indexing takes, with the carried backbone on tiny pictures."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from elvis import load_model
from elvis.cli import main

SMALL = ["--size", "70", "--descriptors", "20", "--views", "1", "--no-tensorboard"]


@pytest.fixture
def elvis(monkeypatch, capsys):
    """Run the command line; exit code, stdout, stderr."""

    def run(*words):
        monkeypatch.setattr("sys.argv", ["elvis", *map(str, words)])
        try:
            main()
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture(autouse=True)
def single_thread():
    """These tensors are so small that threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Descriptors are extracted once for all tests of this file."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    for thing in range(6):
        tiles = np.random.default_rng(thing).integers(0, 255, (6, 6, 3), dtype=np.uint8)
        whole = Image.fromarray(tiles).resize((96, 96), Image.Resampling.NEAREST)
        (folder / f"thing{thing}").mkdir(parents=True)
        for name, box in (("left", (0, 0, 80, 96)), ("right", (16, 0, 96, 96)), ("top", (0, 0, 96, 80))):
            whole.crop(box).save(folder / f"thing{thing}" / f"{name}.png")
    (folder / "thing0" / "broken.jpg").write_bytes(b"no picture")
    return folder


@pytest.mark.weights
def test_from_photographs_to_a_head_that_indexing_takes(elvis, photos, cache, tmp_path):
    head = tmp_path / "head"
    words = ["train", photos, "--out", head, "--steps", 4, "--triplets", 6, "--cache", cache, *SMALL]
    code, out, err = elvis(*words)
    assert code == 0, err
    assert "18 pictures of 6 objects" in out
    assert "left out" in out
    assert "broken.jpg: it is damaged" in out
    assert "mAP@100 of 6 queries (pictures of held-out objects) among all pictures" in out
    assert "global vector alone (global); new head" in out
    assert "best without training (chamfer" in out
    assert out.endswith(f"elvis index {photos} --index NEW --head {head}\n")
    assert "training: 4 of 4, loss" in err
    model = load_model("elvis", head)
    assert model.config.extraction["longer_side"] == 70
    assert model.config.card["settings"]["steps"] == 4
    assert model.config.card["queries"] == 6
    report = json.loads((head / "training" / "report.json").read_text())
    assert set(report["map"]) == {
        "global",
        "chamfer@raw",
        "chamfer@standardised",
        "chamfer-ot@raw",
        "chamfer-ot@standardised",
        "elvis",
    }
    assert report["skipped"][0]["reason"] == "it is damaged, or in no format that is read"
    # The command it ends with works, word for word.
    index = out.strip().splitlines()[-1].replace("NEW", str(tmp_path / "index")).split()[1:]
    code, out, err = elvis(*index)
    assert code == 0, err
    query = photos / "thing3" / "top.png"
    code, out, _ = elvis("search", query, "--index", tmp_path / "index", "--json")
    assert code == 0
    assert json.loads(out.splitlines()[0])

    # What is there is not overwritten unasked, and a finished run is told again.
    assert elvis(*words)[0] == 13
    code, again, err = elvis("train", photos, "--out", head, "--resume", "--cache", cache, "--json", "--no-tensorboard")
    assert code == 0, err
    assert json.loads(again)["map"] == report["map"]
    # Settings of the same run cannot change under way.
    code, _, err = elvis("train", photos, "--out", head, "--resume", "--cache", cache, "--lr", 1)
    assert code == 13
    assert "was trained with settings" in err

    # The head is trained further.
    more = ["train", photos, "--out", tmp_path / "more", "--head", head, "--steps", 2, "--cache", cache, "--views", 1]
    code, out, err = elvis(*more, "--no-tensorboard", "--holdout", 0.4)
    assert code == 0, err
    assert "head before (before); new head" in out
    assert load_model("elvis", tmp_path / "more").config.extraction["longer_side"] == 70


@pytest.mark.weights
def test_without_labels_and_without_holding_out(elvis, photos, cache, tmp_path):
    words = ["train", photos, "--self-supervised", "--steps", 2, "--triplets", 4, "--cache", cache, *SMALL]
    code, out, err = elvis(*words, "--out", tmp_path / "a")
    assert code == 0, err
    assert "(augmented views of held-out pictures)" in out
    code, out, err = elvis(*words, "--out", tmp_path / "b", "--holdout", 0)
    assert code == 0, err
    assert "nothing was held out, so nothing is known of what it brought; the last head was kept" in out


@pytest.mark.weights
def test_a_recipe_from_a_file_and_json(elvis, photos, cache, tmp_path):
    (tmp_path / "recipe.toml").write_text('preset = "published"\nepochs = 1\nmin_positives = 1\nmin_negatives = 1\n')
    words = ["train", photos, "--out", tmp_path / "head", "--config", tmp_path / "recipe.toml", "--cache", cache]
    code, out, err = elvis(*words, *SMALL, "--json")
    assert code == 0, err
    assert json.loads(out)["anchors"] == 12
    settings = load_model("elvis", tmp_path / "head").config.card["settings"]
    assert (settings["epochs"], settings["triplets"], settings["views"]) == (1, 200, 1)


@pytest.mark.weights
def test_a_detector(elvis, photos, cache, tmp_path):
    out_file = tmp_path / "d.safetensors"
    words = ["train", photos, "--detector", "--out", out_file, "--steps", 2, "--triplets", 4, "--cache", cache]
    code, out, err = elvis(*words, "--size", 70)
    assert code == 0, err
    assert "the new detector" in out
    assert out.endswith(f"elvis index {photos} --index NEW --selection {out_file}\n")
    assert elvis(*words)[0] == 13
    code, out, err = elvis("index", photos, "--index", tmp_path / "i", "--selection", out_file, "--size", 70)
    assert code == 0, err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["no/such"], 13, "no/such: no such file or folder"),
        (["EMPTY"], 13, "holds no pictures"),
        (["PHOTOS/thing1"], 13, "holds pictures but no folders of them"),
        (["PHOTOS", "--preset", "huge"], 2, "unknown training preset 'huge'"),
        (["PHOTOS", "--steps", "3", "--epochs", "2"], 2, "epochs and steps: expected one of them, got 2 and 3"),
        (["PHOTOS", "--lr", "0"], 2, "lr: expected a number above 0"),
        (["PHOTOS", "--holdout", "1"], 2, "holdout: expected a share"),
        (["PHOTOS", "--config", "no.toml"], 13, "no.toml cannot be read"),
        (["PHOTOS", "--head", "EMPTY"], 4, "holds no head"),
        (["PHOTOS", "--resume"], 13, "holds no unfinished training: leave --resume out"),
        (["PHOTOS", "--detector", "--resume"], 2, "a detector"),
    ],
)
def test_what_cannot_work_is_one_line_and_a_code(elvis, photos, tmp_path, words, code, message):
    (tmp_path / "empty").mkdir()
    given = [word.replace("PHOTOS", str(photos)).replace("EMPTY", str(tmp_path / "empty")) for word in words]
    found, _, err = elvis("train", *given, "--out", tmp_path / "head", "--size", 28)
    assert found == code, err
    assert message in err
    assert not (tmp_path / "head" / "config.json").exists()


@pytest.mark.parametrize("keep", [["thing1"], ["thing1", "thing2", "thing3"]])
def test_too_few_objects_are_said_before_a_backbone_is_loaded(elvis, photos, tmp_path, keep, monkeypatch):
    import shutil

    for folder in photos.iterdir():
        if folder.name not in keep:
            shutil.rmtree(folder)
    monkeypatch.setattr("elvis.extract.load_backbone", None)
    code, _, err = elvis("train", photos, "--out", tmp_path / "head")
    assert code == 13
    assert ("all 3 pictures show one object" if len(keep) == 1 else "too few to hold 2 out") in err
