from __future__ import annotations

import io

import pytest
import torch
from PIL import Image

from elvis import Hit
from elvis.boxes import match_boxes
from elvis.errors import ElvisError
from elvis.visualise import contact_sheet, match_sheet, save, to_png
from pair_examples import SHAPES, assert_texts_are_readable, explanation, picture


@pytest.mark.parametrize("transport", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_match_sheet(shape, transport):
    sizes = SHAPES[shape]
    made = explanation(sizes, transport=transport)
    figure = match_sheet(
        made, picture(sizes[0]), picture(sizes[1], 1), headline="chamfer-ot · global similarity 0.731",
        boxes=((0.1, 0.1, 0.5, 0.5), (0, 0, 1, 0.9)),
    )  # fmt: skip
    lines = [each for axes in figure.axes for each in axes.get_children() if each.get_label() == "matches"]
    assert [len(each.get_segments()) for each in lines] == [25, 25]
    assert f"score {float(made.score):.2f}" in figure.texts[1].get_text()
    assert_texts_are_readable(figure)
    opened = Image.open(io.BytesIO(to_png(figure)))
    assert all(400 <= side <= 2400 for side in opened.size)


def test_match_sheet_with_gains_and_without_a_picture():
    gain = torch.rand(6, 8)
    figure = match_sheet(
        explanation(), picture((640, 480)), None, query_gain=gain, gallery_gain=gain, boxes=(None, None)
    )
    assert "too few matches" in figure.texts[1].get_text()
    assert_texts_are_readable(figure)


def hits(count):
    return [
        Hit(f"shop/aisle {k}/IMG_{k:04}.jpg", k + 1, 20 - k, (7 * k) % count + 1, 0.8 - k / 40) for k in range(count)
    ]


@pytest.mark.parametrize("count", [0, 1, 4, 10, 23])
def test_contact_sheet(count):
    found = hits(count)
    shapes = [(640, 480), (480, 640), (1800, 300), (300, 1800), (64, 64)]
    pictures = [picture(shapes[k % 5], k) if k != 3 else None for k in range(count)]
    figure = contact_sheet(picture((480, 640)), found, pictures, headline="chamfer-ot re-ranked 400 of 41")
    assert_texts_are_readable(figure)
    shown = [text.get_text() for text in figure.texts]
    for hit in found:
        assert f"score {hit.score:.2f}" in shown
        assert any(text.startswith(f"was {hit.rank_before} ") for text in shown)


def test_contact_sheet_draws_boxes_where_they_are():
    hit = Hit("a.jpg", 1, 9.0, 1, 0.5, box=(0.25, 0.5, 0.5, 0.25))
    figure = contact_sheet(picture((400, 200)), [hit], [picture((400, 200))])
    (corner,) = {patch.get_xy() for axes in figure.axes for patch in axes.patches}
    assert corner == (0.25, 0.25)  # the picture is one wide and half as high


def test_names_that_are_hard_to_print():
    hard = [
        "漢字 名前.jpg",
        "two\nlines.jpg",
        "$x^2$ and $y$.jpg",
        "long-" * 60 + ".jpg",
        "ümläut é.jpg",
        "😀.jpg",
        "a\x07b.jpg",
    ]
    found = [Hit(f"folder/{name}", k + 1, 1.0, k + 1, 0.5) for k, name in enumerate(hard)]
    figure = contact_sheet(picture((40, 30)), found, [picture((40, 30))] * len(found), headline=hard[2])
    assert_texts_are_readable(figure)
    assert hard[2] in [text.get_text() for text in figure.texts]


def test_wrong_arguments(tmp_path):
    with pytest.raises(ValueError, match="expected one for each of 1 hits, got 0"):
        contact_sheet(picture((40, 30)), hits(1), [])
    with pytest.raises(ValueError, match="columns: expected at least 1, got 0"):
        contact_sheet(picture((40, 30)), [], [], columns=0)
    figure = contact_sheet(picture((40, 30)), [], [])
    (tmp_path / "file").write_text("")
    with pytest.raises(ElvisError, match="cannot be written"):
        save(figure, tmp_path / "file" / "sheet.png")


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg", "jpg"])
def test_saved_as_its_suffix_says(tmp_path, suffix):
    path = tmp_path / "made" / f"sheet.{suffix}"
    save(contact_sheet(picture((40, 30)), hits(2), [picture((40, 30)), None]), path)
    start = path.read_bytes()[:8]
    assert start.startswith({"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml", "jpg": b"\xff\xd8"}[suffix])


def test_nothing_global_is_touched():
    import matplotlib

    before = dict(matplotlib.rcParams)
    match_sheet(explanation(), picture((64, 48)), picture((48, 64)), boxes=match_boxes(explanation()))
    assert dict(matplotlib.rcParams) == before
