from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from elvis.errors import IndexMismatch
from elvis.indexing import Progress, add_pictures, card_for, estimate
from elvis.store import Index
from elvis.store.metadata import read_metadata
from store_examples import TwoColour, draw_pictures, matcher


def fresh(folder: Path, *, keep_raw: bool = False) -> Index:
    return Index.create(folder, card_for(TwoColour(), matcher(), keep_raw=keep_raw))


def index_of(folder: Path, places: list[Path], **options) -> Index:
    index = fresh(folder)
    add_pictures(index, places, TwoColour(), matcher(), **options)
    return index


def test_pictures_are_described_as_extractor_and_model_do(tmp_path: Path):
    paths = draw_pictures(tmp_path / "p", 5)
    with fresh(tmp_path / "i", keep_raw=True) as index:
        report = add_pictures(index, [tmp_path / "p"], TwoColour(), matcher(), commit_every=2)
        assert (report.added, report.updated, report.unchanged, report.skipped) == (5, 0, 0, [])
        raw = next(TwoColour().extract([Image.open(paths[3])]))
        kept = index.descriptors([str(paths[3])], raw=True)
        assert torch.equal(kept.vectors.half(), raw.vectors.half())
        assert torch.equal(kept.size, raw.size.int())
        prepared = index.descriptors([str(paths[3])])
        assert torch.equal(prepared.vectors.half(), matcher().prepare(raw).vectors.half())
        assert torch.allclose(prepared.xy, raw.xy, atol=1e-5)
        assert torch.equal(prepared.image_vector, raw.image_vector)


def test_the_best_neighbour_of_a_picture_is_itself(tmp_path: Path):
    paths = draw_pictures(tmp_path / "p", 20)
    with index_of(tmp_path / "i", [tmp_path / "p"]) as index:
        for path in paths:
            vector = next(TwoColour().extract([Image.open(path)])).image_vector[0]
            assert index.nearest(vector, 1)[0].path == str(path)


def test_a_second_run_reads_nothing_again(tmp_path: Path):
    draw_pictures(tmp_path / "p", 4)
    with index_of(tmp_path / "i", [tmp_path / "p"]) as index:
        extractor = TwoColour()
        report = add_pictures(index, [tmp_path / "p"], extractor, matcher())
        assert (report.added, report.unchanged, extractor.pictures) == (0, 4, 0)


def test_a_new_time_stamp_alone_costs_no_extraction_and_is_remembered(tmp_path: Path):
    paths = draw_pictures(tmp_path / "p", 4)
    with index_of(tmp_path / "i", [tmp_path / "p"]) as index:
        os.utime(paths[1], ns=(1, 2))
        extractor = TwoColour()
        report = add_pictures(index, [tmp_path / "p"], extractor, matcher())
        assert (report.unchanged, extractor.pictures) == (4, 0)
        assert index.stamps()[str(paths[1])].mtime_ns == 2
        assert len(index) == 4


def test_a_changed_picture_takes_the_place_of_the_old_one(tmp_path: Path):
    paths = draw_pictures(tmp_path / "p", 4)
    with index_of(tmp_path / "i", [tmp_path / "p"]) as index:
        Image.new("RGB", (33, 44), "red").save(paths[2])
        report = add_pictures(index, [tmp_path / "p"], TwoColour(), matcher())
        assert (report.added, report.updated, report.unchanged) == (0, 1, 3)
        assert index.paths() == [str(path) for path in paths]
        assert index.descriptors([str(paths[2])]).size.tolist() == [[33, 44]]


def test_a_picture_that_became_unreadable_keeps_its_record_and_is_listed(tmp_path: Path):
    paths = draw_pictures(tmp_path / "p", 3)
    with index_of(tmp_path / "i", [tmp_path / "p"]) as index:
        paths[0].write_bytes(paths[0].read_bytes()[:60])
        report = add_pictures(index, [tmp_path / "p"], TwoColour(), matcher())
        assert [each.path for each in report.skipped] == [paths[0]]
        assert "keeps what it had" in report.skipped[0].reason
        assert len(index) == 3


def test_everything_that_is_not_indexed_is_listed_with_its_reason(tmp_path: Path):
    draw_pictures(tmp_path / "p", 2)
    (tmp_path / "p" / "empty.jpg").write_bytes(b"")
    (tmp_path / "p" / "text.txt").write_text("no picture")
    with fresh(tmp_path / "i") as index:
        report = add_pictures(index, [tmp_path / "p", tmp_path / "gone"], TwoColour(), matcher())
    assert {each.path.name: each.reason for each in report.skipped} == {
        "empty.jpg": "it is empty",
        "text.txt": "not a picture (.txt)",
        "gone": "no such file",
    }
    assert report.added == 2


def test_pruning_takes_what_vanished_and_nothing_out_of_reach(tmp_path: Path):
    first = draw_pictures(tmp_path / "a", 3)
    second = draw_pictures(tmp_path / "b", 2, start=10)
    with index_of(tmp_path / "i", [tmp_path / "a", tmp_path / "b"]) as index:
        first[1].unlink()
        assert add_pictures(index, [tmp_path / "a"], TwoColour(), matcher()).removed == 0
        (tmp_path / "b").rename(tmp_path / "unmounted")
        report = add_pictures(index, [tmp_path / "a", tmp_path / "b"], TwoColour(), matcher(), prune=True)
        assert report.removed == 1
        assert index.paths() == [str(path) for path in (first[0], first[2], *second)]


def test_names_with_line_breaks_and_quotes_are_found_again(tmp_path: Path):
    (tmp_path / "p").mkdir()
    names = ["two\nlines.png", "it's.png", "Gänse.png", 'double"quote.png', "back\\slash.png"]
    for name in names:
        Image.new("RGB", (20, 20), "blue").save(tmp_path / "p" / name)
    with index_of(tmp_path / "i", [tmp_path / "p"]) as index:
        assert set(index.paths()) == {str(tmp_path / "p" / name) for name in names}
        Image.new("RGB", (20, 20), "green").save(tmp_path / "p" / names[1])
        assert add_pictures(index, [tmp_path / "p"], TwoColour(), matcher()).updated == 1
        for name in names:
            assert index.remove([str(tmp_path / "p" / name)]) == 1
        assert len(index) == 0


def test_adding_in_two_runs_gives_what_one_run_gives(tmp_path: Path):
    paths = draw_pictures(tmp_path / "p", 30)
    one = index_of(tmp_path / "one", [tmp_path / "p"])
    two = index_of(tmp_path / "two", paths[17:], commit_every=5)
    add_pictures(two, [tmp_path / "p"], TwoColour(), matcher(), commit_every=3)
    assert one.paths() == two.paths() == [str(path) for path in paths]
    here, there = one.descriptors(one.paths()), two.descriptors(two.paths())
    for name in ("vectors", "mask", "xy", "strength", "size", "image_vector"):
        assert torch.equal(getattr(here, name), getattr(there, name))
    for query in np.random.default_rng(0).random((10, 6)):
        answers = [[(each.path, each.similarity) for each in index.nearest(query, 8)] for index in (one, two)]
        assert answers[0] == answers[1]
    one.close()
    two.close()


def test_progress_counts_every_picture_and_every_commit(tmp_path: Path):
    draw_pictures(tmp_path / "p", 7)
    (tmp_path / "p" / "empty.jpg").write_bytes(b"")
    seen: list[Progress] = []
    index_of(tmp_path / "i", [tmp_path / "p"], commit_every=3, on_progress=seen.append).close()
    assert (seen[-1].done, seen[-1].total, seen[-1].committed) == (8, 8, 7)
    assert sorted({each.committed for each in seen}) == [0, 3, 6, 7]


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_control_c_commits_what_was_described_and_then_goes_on(tmp_path: Path):
    draw_pictures(tmp_path / "p", 40)
    with fresh(tmp_path / "i") as index:

        def press(progress: Progress) -> None:
            if progress.done == 10:
                os.kill(os.getpid(), signal.SIGINT)

        with pytest.raises(KeyboardInterrupt):
            add_pictures(index, [tmp_path / "p"], TwoColour(), matcher(), commit_every=4, on_progress=press)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert 10 <= len(index) <= 12
        assert index.verify().sound
        assert not [each for each in threading.enumerate() if each.name == "elvis-decoder"]
        report = add_pictures(index, [tmp_path / "p"], TwoColour(), matcher())
        assert report.added + report.unchanged == 40
        assert report.unchanged >= 10


def test_another_extractor_or_model_is_refused_before_any_work(tmp_path: Path):
    draw_pictures(tmp_path / "p", 2)
    with index_of(tmp_path / "i", [tmp_path / "p"]) as index:
        other = TwoColour("another")
        with pytest.raises(IndexMismatch, match=r"twocolour.*another.*elvis index"):
            add_pictures(index, [tmp_path / "p"], other, matcher())
        plain = type(matcher())()
        with pytest.raises(IndexMismatch, match=r"standardise=True.*standardise=False.*elvis index"):
            add_pictures(index, [tmp_path / "p"], TwoColour(), plain)
        assert other.pictures == 0


def test_metadata_is_stored_for_old_and_new_pictures_and_filters(tmp_path: Path):
    paths = draw_pictures(tmp_path / "p", 6)
    table = tmp_path / "facts.csv"
    lines = [f"p/{path.name},{'Met' if number % 2 else 'Louvre'},{1900 + number}" for number, path in enumerate(paths)]
    table.write_text("path,museum,year\n" + "\n".join(lines) + "\np/none.png,Tate,1\n")
    with index_of(tmp_path / "i", paths[:3]) as index:
        report = add_pictures(index, [tmp_path / "p"], TwoColour(), matcher(), metadata=read_metadata(table))
        assert (report.added, report.unchanged) == (3, 3)
        assert report.unmatched == [str(tmp_path / "p" / "none.png")] or report.unmatched[0].endswith("none.png")
        found = index.nearest(np.ones(6), 10, "museum = 'Met' AND year > 1901")
        assert sorted(each.path for each in found) == [str(paths[3]), str(paths[5])]
        rows = [each.row_id for each in found]
        assert [line["year"] for line in index.metadata(rows)] == [int(Path(each.path).stem) + 1900 for each in found]
        table.write_text(table.read_text().replace("Met,1903", "Prado,1903"))
        add_pictures(index, [tmp_path / "p"], TwoColour(), matcher(), metadata=read_metadata(table))
        assert [each.path for each in index.nearest(np.ones(6), 10, "museum = 'Prado'")] == [str(paths[3])]
        assert index.verify().sound


def test_an_estimate_measures_a_few_pictures_and_leaves_the_index_alone(tmp_path: Path):
    draw_pictures(tmp_path / "p", 40)
    with index_of(tmp_path / "i", draw_pictures(tmp_path / "p", 10)) as index:
        extractor = TwoColour()
        guess = estimate(index, [tmp_path / "p"], extractor, matcher(), sample=5)
        assert (guess.pictures, guess.unchanged, guess.sampled, extractor.pictures) == (30, 10, 5, 6)
        assert guess.hours > 0
        assert len(index) == 10
        before = index.info()["bytes"]
        add_pictures(index, [tmp_path / "p"], TwoColour(), matcher())
        assert guess.bytes / 6 < index.info()["bytes"] - before < guess.bytes * 6  # tiny files: mostly overhead
