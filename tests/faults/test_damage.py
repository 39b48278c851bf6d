"""A flipped byte, a truncated file, a missing file: detected, named, and the rest is served."""

from __future__ import annotations

import logging
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from elvis.errors import ElvisError
from elvis.store import Index, Record
from elvis.store.index import EXACT_LIMIT
from store_examples import card, record

KINDS = ["_versions", "_transactions", "_deletions", "_indices", ".lance", ".blob", "commits", "card.json"]
UNIMPORTANT = ("writer.lock", "latest_version_hint.json")


def records() -> list[Record]:
    # Large ones get a blob file of their own, small ones stand between the other columns.
    return [record(number, count=6000 if number % 3 == 0 else 0) for number in range(24)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with every kind of file."""
    folder = tmp_path_factory.mktemp("whole") / "index"
    every = records()
    with Index.create(folder, card(), exact_limit=10) as index:
        for start in range(0, 18, 6):
            index.put(every[start : start + 6])
        index.compact()  # builds the vector index
        index.put(every[18:])
        index.remove([every[4].path, every[20].path])
        assert index.verify().sound
    kinds = {_kind(path, folder) for path in folder.rglob("*") if path.is_file()}
    assert set(KINDS) <= kinds
    return folder


def _kind(path: Path, folder: Path) -> str:
    if path.suffix in (".lance", ".blob") and "_indices" not in path.parts:
        return path.suffix
    return next((part for part in path.relative_to(folder).parts if part in KINDS), path.name)


def flip(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def truncate(path: Path, chance: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: chance.randrange(path.stat().st_size)])


def delete(path: Path, chance: random.Random) -> None:
    path.unlink()


def check(folder: Path, damaged: Path, caplog: pytest.LogCaptureFixture, exact_limit: int) -> None:
    """What is served is right, the damaged file is named, and a repair makes the index whole again."""
    name = damaged.relative_to(folder).as_posix().removeprefix("pictures.lance/")
    right = {each.path: each for each in records()}
    with caplog.at_level(logging.WARNING), Index.open(folder, exact_limit=exact_limit) as index:
        served = index.paths()
        assert len(served) == len(set(served))
        fetched = index.fetch(served)
        rows = {row: path for row, path in zip(_row_ids(index, served), served, strict=True)}
        for place, row in enumerate(fetched.row_ids):
            expected = right[rows[row]].prepared
            count = expected.vectors.shape[1]
            assert fetched.descriptors is not None
            assert torch.equal(fetched.descriptors.vectors[place, :count], expected.vectors[0].half().float())
        for each in right.values():
            assert each.raw.image_vector is not None
            for found in index.nearest(each.raw.image_vector[0], 3):
                assert found.path in right
        report = index.verify()
        named = " ".join([*report.files, *report.files.values(), *report.lost.values(), caplog.text])
        assert name in named or damaged.name in named
        assert not report.sound
        lost_few = len(served) - len(fetched.damaged)
    with Index.open(folder, writable=True, exact_limit=exact_limit) as index:
        index.repair()
        assert index.verify().sound
        again = [each for each in right.values() if each.path not in index.stamps()]
        index.put(again)
        assert index.paths() == sorted(right)
        assert len(index.fetch(sorted(right)).row_ids) == len(right)
        assert index.verify().sound
    assert lost_few >= 6  # of 22: at least the commits before the damaged one


def _row_ids(index: Index, paths: list[str]) -> list[int]:
    table = index.to_arrow() if not index.needs_repair else None
    if table is not None:
        found = dict(zip(table["path"].to_pylist(), table["_rowid"].to_pylist(), strict=True))
        return [found[path] for path in paths]
    heads = index._heads
    return [int(heads.row_ids[heads.by_key[path]]) for path in paths]


def victims(whole: Path, kind: str) -> list[str]:
    inside = sorted(path for path in whole.rglob("*") if path.is_file() and _kind(path, whole) == kind)
    return [path.relative_to(whole).as_posix() for path in inside if path.name not in UNIMPORTANT]


@pytest.mark.parametrize(
    ("kind", "harm"),
    [
        ("_versions", truncate),
        (".lance", flip),
        (".lance", truncate),
        (".blob", flip),
        ("_deletions", flip),
        ("commits", truncate),
    ],
)
def test_damage_to_one_file_of_each_kind(
    whole: Path,
    kind: str,
    harm: Callable[[Path, random.Random], None],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
):
    chance = random.Random(f"{kind} {harm.__name__}")
    folder = tmp_path / "index"
    shutil.copytree(whole, folder)
    damaged = folder / victims(whole, kind)[-1 if kind == "commits" else 0]
    harm(damaged, chance)
    check(folder, damaged, caplog, EXACT_LIMIT)


@pytest.mark.slow
@pytest.mark.parametrize("exact_limit", [EXACT_LIMIT, 10])
@pytest.mark.parametrize("kind", KINDS)
def test_damage_to_every_file_at_many_places(
    whole: Path, kind: str, exact_limit: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    chance = random.Random(kind)
    folder = tmp_path / "index"
    # Without its commit file a commit has never been, and the state before is right: that is no damage.
    for victim in victims(whole, kind):
        for harm in [flip] * 6 + [truncate] * 3 + [delete] * (kind != "commits"):
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(whole, folder)
            harm(folder / victim, chance)
            caplog.clear()
            check(folder, folder / victim, caplog, exact_limit)


def test_damage_everywhere_is_an_error_in_one_line(whole: Path, tmp_path: Path):
    folder = tmp_path / "index"
    shutil.copytree(whole, folder)
    for manifest in (folder / "pictures.lance" / "_versions").glob("*.manifest"):
        manifest.write_bytes(b"")
    with pytest.raises(ElvisError) as caught:
        Index.open(folder)
    assert "\n" not in str(caught.value)
    assert "restore a copy" in str(caught.value)
