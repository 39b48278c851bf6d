import os

import pytest
from PIL import Image

from elvis.image_files import Skipped, find_images

POSIX = pytest.mark.skipif(os.name == "nt", reason="Windows has no such names, links or files")


def picture(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 4)).save(path, "PNG")
    return path


def listing(places):
    return [
        f"{each.path.name}: {each.reason}" if isinstance(each, Skipped) else each.name for each in find_images(places)
    ]


@POSIX
def test_everything_is_listed_in_order_of_names(tmp_path):
    for name in ["b/2.jpg", "b/10.jpg", "a.png", "c/d/e.webp", "Z.PNG", "Gänse\nblümchen.jpg", ".hidden/x.jpg"]:
        picture(tmp_path / name)
    picture(tmp_path / "photo")
    (tmp_path / "notes.txt").write_text("P6 is no picture")
    (tmp_path / "empty").write_bytes(b"")
    os.mkfifo(tmp_path / "pipe.jpg")
    assert listing([tmp_path]) == [
        "x.jpg",
        "Gänse\nblümchen.jpg",
        "Z.PNG",
        "a.png",
        "10.jpg",
        "2.jpg",
        "e.webp",
        "empty: not a picture (no suffix)",
        "notes.txt: not a picture (.txt)",
        "photo",
        "pipe.jpg: a pipe, socket or device, not a file",
    ]


def test_pictures_under_another_suffix_are_found_by_content(tmp_path):
    for kind, name in [("JPEG", "a.txt"), ("PNG", "b.dat"), ("WEBP", "c"), ("GIF", "d.bak"), ("PPM", "e.x")]:
        Image.new("RGB", (4, 4)).save(tmp_path / name, kind)
    Image.new("RGB", (4, 4)).save(tmp_path / "f.y", "TIFF")
    Image.new("RGB", (4, 4)).save(tmp_path / "g.z", "JPEG2000")
    assert listing([tmp_path]) == ["a.txt", "b.dat", "c", "d.bak", "e.x", "f.y", "g.z"]


def test_a_file_named_itself_is_always_tried(tmp_path):
    text = tmp_path / "notes.txt"
    text.write_text("hello")
    assert listing([text]) == ["notes.txt"]


@POSIX
def test_symlink_loops_end_and_are_reported(tmp_path):
    picture(tmp_path / "a" / "1.png")
    (tmp_path / "a" / "loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "b").symlink_to(tmp_path / "a", target_is_directory=True)
    (tmp_path / "self").symlink_to(tmp_path / "self")
    (tmp_path / "gone.jpg").symlink_to(tmp_path / "nowhere.jpg")
    (tmp_path / "other.jpg").symlink_to(tmp_path / "a" / "1.png")
    found = listing([tmp_path])
    assert found[0] == "1.png"
    assert found[1] == f"loop: the same folder as {tmp_path}"
    assert found[2] == f"b: the same folder as {tmp_path / 'a'}"
    assert found[3] == "gone.jpg: a link that leads nowhere"
    assert found[4] == "other.jpg"
    assert found[5].startswith("self: too many levels of symbolic links")
    assert len(found) == 6


def test_places_that_overlap_give_each_picture_once(tmp_path):
    first, second = picture(tmp_path / "a" / "1.png"), picture(tmp_path / "a" / "2.png")
    assert listing([first, tmp_path, tmp_path / "a", second, first]) == [
        "1.png",
        "1.png: reached before",
        "2.png",
        f"a: the same folder as {tmp_path / 'a'}",
        "2.png: reached before",
        "1.png: reached before",
    ]


def test_what_is_not_there_or_not_readable_is_reported(tmp_path, monkeypatch):
    assert listing([tmp_path / "absent"]) == ["absent: no such file"]
    picture(tmp_path / "closed" / "1.png")
    picture(tmp_path / "open" / "2.png")
    listdir = os.listdir

    def refuse(path):
        # Root reads everything, so the refusal itself is produced here.
        if os.path.basename(path) == "closed":
            raise PermissionError(13, "Permission denied", str(path))
        return listdir(path)

    monkeypatch.setattr(os, "listdir", refuse)
    assert listing([tmp_path]) == ["closed: no permission to read it", "2.png"]


@POSIX
def test_a_name_that_is_no_text_is_reported(tmp_path):
    try:
        (tmp_path / os.fsdecode(b"caf\xe9.jpg")).write_bytes(b"")
    except OSError:
        pytest.skip("this file system takes names in UTF-8 only")
    assert listing([tmp_path]) == [os.fsdecode(b"caf\xe9.jpg") + ": its name is no valid UTF-8: rename it"]


@POSIX
def test_deep_trees_do_not_exhaust_the_stack(tmp_path):
    folder = tmp_path
    for _ in range(400):
        folder = folder / "d"
    picture(folder / "deep.png")
    assert listing([tmp_path]) == ["deep.png"]
