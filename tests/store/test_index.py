from __future__ import annotations

import json
import multiprocessing
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from elvis import Descriptors
from elvis.errors import IndexDamaged, IndexMismatch, IndexMissing, StoreError, UnknownName
from elvis.store import Index, IndexCard, Stamp, maintenance
from elvis.store.commits import KEPT, commit_numbers
from store_examples import IMAGE_DIM, card, matcher, record


@pytest.fixture
def index(tmp_path: Path):
    with Index.create(tmp_path / "index", card(keep_raw=True)) as made:
        for start in range(0, 20, 5):
            made.put([record(number) for number in range(start, start + 5)])
        yield made


def by_hand(query: np.ndarray, numbers: list[int], k: int) -> list[tuple[str, float]]:
    cosines = {}
    for number in numbers:
        vector = record(number).raw.image_vector[0].double().numpy()
        cosines[record(number).path] = float(vector @ query / np.linalg.norm(vector) / np.linalg.norm(query))
    return sorted(cosines.items(), key=lambda each: (-each[1], each[0]))[:k]


def test_records_come_back_in_the_order_of_the_request(index: Index):
    numbers = [7, 2, 7, 19, 0]
    found = index.descriptors([record(number).path for number in numbers])
    for place, number in enumerate(numbers):
        right = record(number).prepared
        count = right.vectors.shape[1]
        assert found.counts[place] == count
        assert torch.equal(found.vectors[place, :count], right.vectors[0].half().float())
        assert torch.equal(found.gain[place, :count], right.gain[0].half().float())
        assert torch.equal(found.image_vector[place], record(number).raw.image_vector[0])
        assert found.size[place].tolist() == [640 + number, 480]
    raw = index.descriptors([record(3).path], raw=True, dtype=torch.float16)
    assert torch.equal(raw.vectors, record(3).raw.vectors.half())


def test_nearest_is_exact(index: Index):
    for query in np.random.default_rng(1).normal(size=(20, IMAGE_DIM)):
        found = index.nearest(query, 6)
        right = by_hand(query, list(range(20)), 6)
        assert [each.path for each in found] == [path for path, _ in right]
        assert np.allclose([each.similarity for each in found], [cosine for _, cosine in right], atol=1e-6)
    many = index.nearest_many(np.eye(IMAGE_DIM), 3)
    assert many == [index.nearest(row, 3) for row in np.eye(IMAGE_DIM)]
    assert len(index.nearest(np.ones(IMAGE_DIM), 1000)) == 20


def test_equal_pictures_come_in_the_order_of_their_paths(tmp_path: Path):
    with Index.create(tmp_path / "i", card()) as index:
        for name in "dbeca":
            index.put([record(1, path=f"/{name}"), record(2, path=f"/other-{name}")])
        found = index.nearest(record(1).raw.image_vector[0], 3)
        assert [each.path for each in found] == ["/a", "/b", "/c"]
        assert len({each.similarity for each in found}) == 1


def test_a_large_index_proposes_by_vector_index_and_compares_exactly(tmp_path: Path):
    with Index.create(tmp_path / "i", card(), exact_limit=100) as index:
        for start in range(0, 400, 100):
            index.put([record(number) for number in range(start, start + 100)])
        index.compact()
        index.put([record(number) for number in range(400, 420)])  # newer than the vector index
        agreed = 0
        for query in np.random.default_rng(1).normal(size=(20, IMAGE_DIM)):
            right = by_hand(query, list(range(420)), 10)
            found = {each.path: each.similarity for each in index.nearest(query, 10)}
            agreed += len(found.keys() & {path for path, _ in right})
        assert agreed > 195
        assert index.nearest(record(415).raw.image_vector[0], 1)[0].path == record(415).path
        assert len(index.nearest(np.ones(IMAGE_DIM), 5, "width < 643")) == 3
        assert index.descriptors([record(9).path]).size.tolist() == [[649, 480]]
        with pytest.raises(ValueError, match="columns: path"):
            index.nearest(np.ones(IMAGE_DIM), 5, "colour = 3")
        assert index.verify().sound


@pytest.mark.parametrize("where", ["museum = 'X'", "nonsense here", "width", "width = "])
def test_a_bad_filter_is_a_value_error_in_one_line_that_names_the_columns(index: Index, where: str):
    with pytest.raises(ValueError, match=r"where: .* columns: path, size, width, height") as caught:
        index.nearest(np.ones(IMAGE_DIM), 3, where)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("vector", "k", "message"),
    [
        (np.ones(3), 1, r"expected shape \(Q, 6\), got \(1, 3\)"),
        (np.zeros(IMAGE_DIM), 1, "not all zero"),
        (np.full(IMAGE_DIM, np.nan), 1, "finite"),
        (np.ones(IMAGE_DIM), 0, "k: expected at least 1, got 0"),
    ],
)
def test_a_query_that_does_not_fit_is_refused(index: Index, vector: np.ndarray, k: int, message: str):
    with pytest.raises(ValueError, match=message):
        index.nearest(vector, k)


def test_what_is_not_there_is_an_error(index: Index, tmp_path: Path):
    with pytest.raises(StoreError, match="holds no picture /nowhere.png: index it first"):
        index.descriptors(["/nowhere.png"])
    with pytest.raises(StoreError, match="row id 999"):
        index.descriptors([999])
    with pytest.raises(IndexMissing, match="elvis index"):
        Index.open(tmp_path / "elsewhere")
    assert not (tmp_path / "elsewhere").exists()
    with Index.create(tmp_path / "lean", card()) as lean:
        lean.put([record(1)])
        with pytest.raises(IndexMismatch, match="--keep-raw"):
            lean.descriptors([record(1).path], raw=True)
    with Index.open(tmp_path / "lean") as reader, pytest.raises(StoreError, match="reading only"):
        reader.put([record(2)])


def test_replacing_and_removing(index: Index):
    index.put([record(50, path=record(3).path)], replaced=[record(3).path])
    assert len(index) == 20
    assert index.descriptors([record(3).path]).size.tolist() == [[690, 480]]
    assert index.remove([record(3).path, record(4).path, "/nowhere.png"]) == 2
    assert len(index) == len(index.paths()) == 18
    index.touch({record(5).path: Stamp(1005, 77, "")})
    assert index.stamps()[record(5).path] == Stamp(1005, 77, f"{5:064x}")
    assert index.verify().sound


def test_row_ids_stay_when_files_are_joined(index: Index, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(maintenance, "MANY_FILES", 2)
    before = {each.path: each.row_id for each in index.nearest(np.ones(IMAGE_DIM), 20)}
    answers = index.nearest(np.ones(IMAGE_DIM), 20)
    assert index.compact() == 20
    for _ in range(KEPT):
        index.touch({record(1).path: Stamp(0, 1, "")})
    assert sum(name.startswith("data/") for name in index._choice.commit.files) <= 3
    assert index.nearest(np.ones(IMAGE_DIM), 20) == answers
    assert {path: index.descriptors([row]).size.tolist() for path, row in before.items()} == {
        record(number).path: [[640 + number, 480]] for number in range(20)
    }
    assert index.verify().sound


def test_joining_is_bounded_and_leaves_large_files_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(maintenance, "MANY_FILES", 2)
    monkeypatch.setattr(maintenance, "PIECE_BYTES", 40_000)
    with Index.create(tmp_path / "i", card()) as index:
        index.put([record(number, count=500) for number in range(6)])  # some 9 kB each: more than half a piece
        for number in range(6, 12):
            index.put([record(number, count=500)])
        assert index.compact() == 6
        assert index.compact() == 0
        assert len(index.paths()) == 12
        assert index.verify().sound


def test_only_the_last_commits_are_kept(index: Index):
    assert len(commit_numbers(index._layout)) == KEPT
    assert len(index._layout.manifest_versions()) == KEPT


def test_an_index_goes_to_a_spawned_process(index: Index):
    with pytest.raises(TypeError, match="writing"):
        pickle.dumps(index)
    with Index.open(index.folder) as reader, multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(reader.nearest, (np.ones(IMAGE_DIM), 5)) == reader.nearest(np.ones(IMAGE_DIM), 5)


def test_a_reader_goes_on_to_the_newest_state_when_asked(index: Index):
    with Index.open(index.folder) as reader:
        index.put([record(30)])
        assert (len(reader), reader.refresh(), len(reader), reader.refresh()) == (20, True, 21, False)


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path):
    (tmp_path / "thesis.txt").write_text("important")
    with pytest.raises(StoreError, match="not empty"):
        Index.create(tmp_path, card())
    Index.create(tmp_path / "i", card()).close()
    with pytest.raises(StoreError, match="holds an index already"):
        Index.create(tmp_path / "i", card())
    with pytest.raises(ValueError, match="object storage"):
        Index.open("s3://bucket/index")


def test_the_card_says_what_made_the_index(index: Index):
    assert index.card.created
    assert index.card.library
    assert IndexCard.from_json(json.loads((index.folder / "card.json").read_text()), "x") == index.card
    with pytest.raises(IndexDamaged, match=r"schema 1 and int8, which do not go together"):
        IndexCard.from_json({**index.card.to_json(), "descriptor_dtype": "int8"}, "x")
    with pytest.raises(IndexMismatch, match=r"schema 99.*upgrade"):
        IndexCard.from_json({**index.card.to_json(), "schema": 99}, "x")
    with pytest.raises(IndexDamaged, match="lacks dim"):
        IndexCard.from_json({name: value for name, value in index.card.to_json().items() if name != "dim"}, "x")


def test_a_record_that_does_not_fit_the_card_is_refused_and_nothing_is_changed(tmp_path: Path):
    with Index.create(tmp_path / "i", card(dim=5)) as index:
        with pytest.raises(ValueError, match="expected prepared descriptors of 5 channels, got 6"):
            index.put([record(1)])
        assert len(index) == 0


def test_info_has_counts_dates_and_card(index: Index):
    facts = index.info()
    assert facts["pictures"] == 20
    assert facts["bytes"] > 10_000
    assert facts["card"]["model"] == "chamfer-ot"
    json.dumps(facts)


def test_int8_is_its_own_schema_and_is_fetched_as_it_is(tmp_path: Path):
    assert (card().schema, card(descriptor_dtype="int8").schema) == (1, 2)
    with pytest.raises(UnknownName, match="unknown descriptor dtype 'int4': choose one of float16, int8"):
        card(descriptor_dtype="int4")
    records = [replace(record(number), prepared=matcher().prepare(record(number).prepared)) for number in range(4)]
    with Index.create(tmp_path / "i", card(descriptor_dtype="int8", keep_raw=True)) as index:
        index.put(records)
    with Index.open(tmp_path / "i") as index:
        assert index.card.descriptor_dtype == "int8"
        paths = [each.path for each in records]
        stored = index.fetch(paths, dtype=None).descriptors
        assert stored.vectors.dtype == torch.int8
        right = Descriptors.stack([each.prepared for each in records])
        widened = index.descriptors(paths)
        assert (widened.vectors - right.vectors).abs().max() < 0.5 / 127
        assert torch.equal(index.descriptors(paths, dtype=torch.float16).vectors, widened.vectors.half())
        raw = index.fetch(paths, raw=True, dtype=None).descriptors
        assert torch.equal(raw.vectors, Descriptors.stack([each.raw for each in records]).vectors.half())
        with pytest.raises(
            IndexMismatch, match="made with descriptor_dtype=int8, asked for is descriptor_dtype=float16"
        ):
            index.card.check(card(keep_raw=True), "x")
