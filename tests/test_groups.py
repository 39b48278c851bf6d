"""Groups: what belongs together, what stays apart, and going on after a stop."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from elvis import Index
from elvis.building import index_pictures
from elvis.errors import StoreError
from elvis.groups import find_groups
from elvis.ranking import IndexRanking

THRESHOLD = 0.08


@pytest.fixture(scope="module")
def place(tiny_checkpoint: Callable[[str], Path], collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("indexes") / "photos.index"
    settings = {"backbone": str(tiny_checkpoint("dinov2")), "longer_side": 112, "descriptors": 40}
    index_pictures([collection / "photos"], folder, settings=settings)
    return folder


def things(groups: list) -> list[set[str]]:
    return sorted(({Path(member.path).stem for member in group} for group in groups), key=sorted)


def test_two_views_of_each_thing_are_put_together(place: Path, tmp_path: Path) -> None:
    with Index.open(place) as index:
        found = find_groups(index, IndexRanking(index), threshold=THRESHOLD, journal=tmp_path / "j")
    assert things(found) == [{f"thing{thing}-0", f"thing{thing}-1"} for thing in range(8)]
    assert all(member.strength >= THRESHOLD for group in found for member in group)


def test_the_threshold_decides(place: Path, tmp_path: Path) -> None:
    with Index.open(place) as index:
        ranking = IndexRanking(index)
        assert find_groups(index, ranking, threshold=1.0, journal=tmp_path / "j") == []
        everything = find_groups(index, ranking, threshold=1e-9, journal=tmp_path / "j")
    assert [len(group) for group in everything] == [16]


def test_a_stopped_run_goes_on(place: Path, tmp_path: Path) -> None:
    journal = tmp_path / "journal"

    def stop(done: int, total: int) -> None:
        if done == 5:
            raise KeyboardInterrupt

    with Index.open(place) as index:
        ranking = IndexRanking(index)
        whole = find_groups(index, ranking, threshold=THRESHOLD, journal=tmp_path / "whole")
        with pytest.raises(KeyboardInterrupt):
            find_groups(index, ranking, threshold=THRESHOLD, journal=journal, on_progress=stop)
        with journal.open("a") as stream:
            stream.write('{"near": [1, 2')  # a line torn by a crash
        steps: list[int] = []
        again = find_groups(
            index, ranking, threshold=THRESHOLD, journal=journal, on_progress=lambda done, total: steps.append(done)
        )
    assert steps == list(range(6, 17))
    assert again == whole
    assert journal.read_text() == (tmp_path / "whole").read_text()


def test_a_journal_of_another_run_is_refused(place: Path, tmp_path: Path) -> None:
    with Index.open(place) as index:
        find_groups(index, IndexRanking(index), threshold=THRESHOLD, journal=tmp_path / "j")
        with pytest.raises(StoreError, match="another neighbours"):
            find_groups(index, IndexRanking(index), threshold=THRESHOLD, neighbours=3, journal=tmp_path / "j")
        (tmp_path / "x").write_text(json.dumps({"hello": 1}) + "\n")
        with pytest.raises(StoreError, match="is no journal of elvis groups"):
            find_groups(index, IndexRanking(index), threshold=THRESHOLD, journal=tmp_path / "x")


def test_bad_arguments_are_named(place: Path, tmp_path: Path) -> None:
    with Index.open(place) as index:
        with pytest.raises(ValueError, match="got global"):
            find_groups(index, IndexRanking(index, "global"), threshold=0.1, journal=tmp_path / "j")
        with pytest.raises(ValueError, match=r"threshold: expected a number in \(0, 1\], got 0"):
            find_groups(index, IndexRanking(index), threshold=0, journal=tmp_path / "j")
