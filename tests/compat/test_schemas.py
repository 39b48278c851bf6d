"""A store of every schema that was ever released opens, or says which command migrates it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image

from elvis.indexing import add_pictures
from elvis.store import SCHEMA, Index
from store_examples import TwoColour, draw_pictures, matcher

STORES = sorted(Path(__file__).parent.glob("schema-*"))


def test_the_current_schema_is_kept_here():
    assert f"schema-{SCHEMA}" in [store.name for store in STORES]


@pytest.mark.parametrize("store", STORES, ids=lambda store: store.name)
def test_an_old_store_opens_searches_and_goes_on(store: Path, tmp_path: Path):
    folder = tmp_path / "index"
    error = 1e-3 if store.name == "schema-1" else 0.5 / 127  # int8 from schema 2 on
    shutil.copytree(store, folder)
    pictures = draw_pictures(tmp_path / "pictures", 6)
    with Index.open(folder) as index:
        assert index.verify().sound
        stored = index.paths()
        assert [Path(path).name for path in stored] == [path.name for path in pictures if path.stem != "00002"]
        prepared, raw = index.descriptors(stored), index.descriptors(stored, raw=True)
        for place, path in enumerate(stored):
            right = next(TwoColour().extract([Image.open(tmp_path / "pictures" / Path(path).name)]))
            assert torch.equal(raw.vectors[place].half(), right.vectors[0].half())
            assert torch.allclose(prepared.vectors[place], matcher().prepare(right).vectors[0], atol=error)
            assert index.nearest(right.image_vector[0], 1)[0].path == path
        found = index.nearest(prepared.image_vector[0], 9, "year >= 3 AND museum <> 'M00005'")
        assert sorted(Path(each.path).stem for each in found) == ["00003", "00004"]
    with Index.open(folder, writable=True) as index:
        report = add_pictures(index, [tmp_path / "pictures"], TwoColour(), matcher())
        assert (report.added, len(index)) == (6, 11)
        assert index.verify().sound
