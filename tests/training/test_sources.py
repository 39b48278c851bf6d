"""Every form in which a person has pictures, and every way in which they cannot be learnt from."""

import numpy as np
import pytest
from PIL import Image

from elvis.errors import TrainingError
from elvis.training.examples import hold_out
from elvis.training.sources import check_trainable, find_pictures, label_numbers
from elvis.training.triplets import UNLABELLED
from training_examples import tiny_config


def save(file, colour="red"):
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), colour).save(file)


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    for name in ("cup/1.jpg", "cup/2.jpg", "bowl/a/1.png", "bowl/2.png", "loose.jpg"):
        save(folder / name)
    (folder / "cup" / "notes.txt").write_text("no picture")
    return folder


def labels(found):
    return {each.name: each.label for each in found.pictures}


def test_a_folder_an_object(photos):
    found = find_pictures(photos)
    assert labels(found) == {
        "bowl/2.png": "bowl",
        "bowl/a/1.png": "bowl",
        "cup/1.jpg": "cup",
        "cup/2.jpg": "cup",
        "loose.jpg": None,
    }
    assert [(each.path.name, each.reason) for each in found.skipped] == [("notes.txt", "not a picture (.txt)")]
    assert found.name == "photos"
    assert found.labelled


def test_without_labels(photos):
    found = find_pictures(photos, self_supervised=True)
    assert set(labels(found).values()) == {None}
    assert len(found.pictures) == 5
    assert not found.labelled


def test_a_csv_file(photos):
    table = photos / "table.csv"
    table.write_text(f"label,path,year\ncup,cup/1.jpg,1900\n cup ,{photos}/cup/2.jpg,\n,loose.jpg,\nx,gone.jpg,\n")
    found = find_pictures(table)
    assert labels(found) == {"cup/1.jpg": "cup", f"{photos}/cup/2.jpg": "cup", "loose.jpg": None}
    assert [each.reason for each in found.skipped] == ["no such file"]
    assert found.name == "table"
    assert all(each.path.is_file() for each in found.pictures)


def test_an_images_csv_gives_its_training_rows(photos):
    (photos / "images.csv").write_text("path,role,label,junk\ncup/1.jpg,train,7,\ncup/2.jpg,query,7,\n")
    assert labels(find_pictures(photos)) == {"cup/1.jpg": "7"}
    (photos / "images.csv").write_text("path,role,label,junk\ncup/1.jpg,both,7,\n")
    with pytest.raises(TrainingError, match="no row with role train"):
        find_pictures(photos)


def test_the_pocket_set_is_read():
    from pathlib import Path

    folder = Path(__file__).parents[2] / ".." / "shared" / "pocket" / "groceries"
    if not folder.is_dir():
        pytest.skip("no pocket data sets beside the checkout")
    found = find_pictures(folder)
    assert len(found.pictures) == 1188
    assert not found.skipped


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path;label\na;b\n", "expected the columns path and label, found no path and no label"),
        ("path,label\ncup/1.jpg\n", "line 2: expected a path and a label"),
        ("path,label\n,cup\n", "line 2: expected a path and a label"),
        ("path,label\ncup/1.jpg,a\ncup/1.jpg,b\n", "line 3: 'cup/1.jpg' stands there twice"),
        ('path,label\n"cup/1.jpg,a\n', "line 2: unexpected end of data"),
        (b"path,label\n\xff,a\n", "expected UTF-8, got something else at byte 11"),
        (
            "path,label\nno.jpg,a\n",
            r"holds no pictures: 1 files are none or cannot be read, as .*no.jpg \(no such file\)",
        ),
        ("path,label\n", "holds no pictures"),
    ],
)
def test_a_malformed_csv_file_is_named_with_its_line(photos, text, message):
    table = photos / "table.csv"
    table.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(TrainingError, match=message):
        find_pictures(table)


def test_places_without_pictures(tmp_path):
    with pytest.raises(TrainingError, match="no such file or folder"):
        find_pictures(tmp_path / "no")
    with pytest.raises(TrainingError, match="holds no pictures"):
        find_pictures(tmp_path)
    save(tmp_path / "1.jpg")
    with pytest.raises(
        TrainingError, match="no folders of them: put those of each object into a folder of its own, or"
    ):
        find_pictures(tmp_path)
    assert len(find_pictures(tmp_path, self_supervised=True).pictures) == 1


def check(labels, **changes):
    return check_trainable("toys", labels, tiny_config(**changes), labelled=True)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a"] * 5, "all 5 pictures show one object, 'a': at least two are needed"),
        ([None, None], "not one picture has a label: label them, or train with --self-supervised"),
        (
            ["a", "b", "c"],
            "every object has one picture only: add a second one of some, or train with --self-supervised",
        ),
        (["a", "a", "b", "b", "c", "c"], "3 objects .* are too few to hold 2 out .* at least 4 are needed"),
        (["a", "a", "b"], "1 objects with two pictures or more are too few"),
    ],
)
def test_what_cannot_be_learnt_from_is_refused(labels, message):
    with pytest.raises(TrainingError, match=message):
        check(labels)


def test_few_objects_can_be_trained_on_without_validation():
    assert check(["a", "a", "b", "b"], holdout=0.0) == []
    # One object against distractors is something to learn, too.
    assert check(["a", "a", None], holdout=0.0) == ["1 pictures without a label serve as distractors only"]


def test_lonely_pictures_are_distractors_and_said_to_be():
    notes = check([*"aabbccddee", "x", "y", None])
    assert notes == [
        "2 objects with a single picture serve as distractors only ('x', 'y')",
        "1 pictures without a label serve as distractors only",
    ]


def test_without_labels_there_must_be_views_and_pictures():
    views = tiny_config(augmented_share=1.0, views=1)
    assert check_trainable("toys", [None] * 9, views, labelled=False) == []
    with pytest.raises(TrainingError, match="one picture is too few"):
        check_trainable("toys", [None], views, labelled=False)
    with pytest.raises(TrainingError, match="set augmented_share to 1"):
        check_trainable("toys", [None] * 9, tiny_config(), labelled=False)
    with pytest.raises(TrainingError, match="3 pictures are too few to hold some out"):
        check_trainable("toys", [None] * 3, views, labelled=False)


def test_labels_are_numbered_by_name():
    assert label_numbers(["b", None, "a", "b"]).tolist() == [1, UNLABELLED, 0, 1]


def test_whole_objects_are_held_out():
    labels = np.array([0] * 3 + [1] * 3 + [2] * 3 + [3] * 3 + [4] + [UNLABELLED] * 4)
    held = hold_out(labels, 0.5, seed=3)
    kept = set(labels[~held])
    assert len(set(labels[held])) == 2
    assert not set(labels[held]) & kept
    assert {4, UNLABELLED} <= kept
    assert (held == hold_out(labels, 0.5, seed=3)).all()
    assert any((held != hold_out(labels, 0.5, seed=seed)).any() for seed in range(5))
    assert not hold_out(labels, 0.0, seed=3).any()
