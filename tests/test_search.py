"""Searching an index from the library: real pictures drawn for the purpose, a tiny random backbone."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import elvis
from elvis import Index, Searcher
from elvis.building import Builder, index_pictures
from elvis.errors import IndexMismatch, UnknownName, UnreadableImage
from examples import small_elvis

METHODS = ["chamfer-ot", "chamfer", "global"]


@pytest.fixture(scope="session")
def settings(tiny_checkpoint: Callable[[str], Path]) -> dict:
    return {"backbone": str(tiny_checkpoint("dinov2")), "longer_side": 112, "descriptors": 40}


@pytest.fixture(scope="session")
def place(collection: Path, settings: dict, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("indexes") / "photos.index"
    with index_pictures([collection / "photos"], folder, settings=settings) as index:
        assert len(index) == 16
    return folder


@pytest.fixture(scope="session")
def head(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("heads") / "head"
    small_elvis(input_dim=32, dim=16).save_pretrained(folder)
    return folder


def names(result: elvis.SearchResult) -> list[str]:
    return [Path(hit.path).name for hit in result]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("thing", [1, 4, 6])
def test_the_same_thing_comes_first(place: Path, collection: Path, method: str, thing: int) -> None:
    with Index.open(place) as index:
        result = Searcher(index, method=method).search(collection / "queries" / f"thing{thing}.jpg", top=4)
    assert names(result)[0].startswith(f"thing{thing}-")
    if method != "global":  # random weights: the global vector is not worth much
        assert set(names(result)[:2]) == {f"thing{thing}-0.png", f"thing{thing}-1.png"}
    assert result.method == method
    assert [hit.rank for hit in result] == [1, 2, 3, 4]
    assert [hit.score for hit in result] == sorted((hit.score for hit in result), reverse=True)
    assert result.candidates == 16
    assert result.seconds.extraction > 0


@pytest.mark.parametrize("method", METHODS)
def test_int8_ranks_alike_in_half_the_space(
    place: Path, collection: Path, settings: dict, tmp_path: Path, method: str
) -> None:
    with index_pictures([collection / "photos"], tmp_path / "i", settings=settings, store="int8") as small:
        view = Searcher(small).describe(collection / "queries" / "thing4.jpg")
        found = Searcher(small, method=method).search_described([view], top=16)
        explained = Searcher(small, method="chamfer").explain(view, found[0].path)
    with Index.open(place) as index:
        right = Searcher(index, method=method).search_described([view], top=16)
    # Random weights make pictures so alike that neighbours may swap; their scores may not differ.
    scores = {hit.path: hit.score for hit in right}
    for hit in found:
        assert hit.score == pytest.approx(scores[hit.path], rel=1e-2)
    assert {hit.path for hit in found.hits[:2]} == {hit.path for hit in right.hits[:2]}
    assert explained.score.isfinite().all()
    assert small.card.schema == 2
    with pytest.raises(IndexMismatch, match="descriptor_dtype"):
        Builder.of(place, store="int8")


def test_global_keeps_the_order_of_the_first_stage(place: Path, collection: Path) -> None:
    with Index.open(place) as index:
        result = Searcher(index, method="global").search(collection / "queries" / "thing1.jpg", top=16)
    assert [hit.rank_before for hit in result] == list(range(1, 17))
    assert all(hit.score == hit.global_similarity and hit.box is None for hit in result)


def test_scores_are_those_of_the_model_on_stored_descriptors(place: Path, collection: Path) -> None:
    with Index.open(place) as index:
        searcher = Searcher(index)
        view = searcher.describe(collection / "queries" / "thing4.jpg")
        hits = searcher.search_described([view], top=16).hits
        stored = index.descriptors([hit.path for hit in hits])
        scores = searcher.model.score(searcher.model.prepare(view), stored)
    torch.testing.assert_close(torch.tensor([hit.score for hit in hits]), scores, rtol=2e-3, atol=2e-3)


def test_depth_bounds_what_is_ranked_anew(place: Path, collection: Path) -> None:
    with Index.open(place) as index:
        result = Searcher(index, depth=3).search(collection / "queries" / "thing1.jpg", top=2)
        assert result.candidates == 3
        assert Searcher(index, depth=1).search(collection / "queries" / "thing1.jpg", top=5).candidates == 5


def test_several_views_are_one_query(place: Path, collection: Path) -> None:
    queries = [collection / "queries" / f"thing{thing}.jpg" for thing in (1, 6)]
    with Index.open(place) as index:
        result = Searcher(index).search(queries, top=4)
    assert {name.partition("-")[0] for name in names(result)} == {"thing1", "thing6"}


def test_filters_and_metadata(collection: Path, settings: dict, tmp_path: Path) -> None:
    from elvis.indexing import add_pictures
    from elvis.store.metadata import read_metadata

    builder = Builder.of(tmp_path / "index", settings=settings)
    with builder.open() as index:
        table = read_metadata(collection / "facts.csv")
        add_pictures(index, [collection / "photos"], builder.extractor, builder.model, metadata=table)
        searcher = Searcher(index, extractor=builder.extractor)
        query = collection / "queries" / "thing1.jpg"
        assert searcher.search(query, top=1)[0].metadata == {"museum": "Met", "year": 1901}
        tate = searcher.search(query, where="museum = 'Tate'", top=16)
        assert len(tate) == 8
        assert {hit.metadata["museum"] for hit in tate} == {"Tate"}
        assert len(searcher.search(query, where="year > 3000")) == 0
        with pytest.raises(ValueError, match="museum"):
            searcher.search(query, where="muzeum = 'Tate'")


def test_a_crop_asks_for_a_part(place: Path, collection: Path) -> None:
    query = collection / "queries" / "thing6.jpg"
    with Index.open(place) as index:
        searcher = Searcher(index)
        whole, same = searcher.search(query), searcher.search(query, crop=(0, 0, 1, 1))
        assert [(hit.path, hit.score) for hit in whole] == [(hit.path, hit.score) for hit in same]
        part = searcher.describe(query, (0.5, 0.0, 0.5, 1.0))
        assert float(part.xy[..., 0].min()) > 0.5
        assert searcher.search(query, crop=(0.5, 0.0, 0.5, 1.0))[0].score < whole[0].score


def test_min_score_may_leave_nothing(place: Path, collection: Path) -> None:
    with Index.open(place) as index:
        searcher = Searcher(index)
        hits = searcher.search(collection / "queries" / "thing1.jpg", top=16)
        cut = searcher.search(collection / "queries" / "thing1.jpg", top=16, min_score=hits[2].score)
        assert len(cut) == 3
        assert len(searcher.search(collection / "queries" / "thing1.jpg", min_score=1e9)) == 0


def test_an_index_for_a_head_serves_that_head_only(
    collection: Path, settings: dict, head: Path, tmp_path: Path
) -> None:
    with index_pictures([collection / "photos"], tmp_path / "bound", settings=settings, head=head) as index:
        assert index.card.dim == 16
        assert Searcher(index).method == "elvis"
        assert len(Searcher(index).search(collection / "queries" / "thing1.jpg")) == 10
        with pytest.raises(IndexMismatch, match=r"elvis index PICTURES --index NEW --keep-raw"):
            Searcher(index, method="chamfer-ot")
        small_elvis(input_dim=32, dim=16, rounds=3).save_pretrained(tmp_path / "other")
        with pytest.raises(IndexMismatch, match="another head"):
            Searcher(index, head=tmp_path / "other")


def test_a_new_index_describes_pictures_as_its_head_was_trained(
    collection: Path, settings: dict, tmp_path: Path
) -> None:
    small_elvis(input_dim=32, dim=16, extraction=settings).save_pretrained(tmp_path / "head")
    with index_pictures([collection / "photos"], tmp_path / "i", head=tmp_path / "head") as index:
        assert index.card.extraction["descriptors"] == 40
        assert index.card.extraction["longer_side"] == 112


def test_with_raw_descriptors_any_method_and_head_ranks(
    collection: Path, settings: dict, head: Path, place: Path, tmp_path: Path
) -> None:
    query = collection / "queries" / "thing4.jpg"
    with index_pictures([collection / "photos"], tmp_path / "i", settings=settings, head=head, keep_raw=True) as index:
        own = Searcher(index).search(query, top=16)
        by_hand = Searcher(index, method="chamfer-ot").search(query, top=16)
        small_elvis(input_dim=32, dim=8, rounds=3).save_pretrained(tmp_path / "other")
        other = Searcher(index, head=tmp_path / "other").search(query, top=16)
    assert own.method == other.method == "elvis"
    assert {hit.score for hit in own} != {hit.score for hit in other}
    with Index.open(place) as index:
        plain = Searcher(index).search(query, top=16)
    expected = {hit.path: hit.score for hit in plain}
    assert {hit.path: hit.score for hit in by_hand} == pytest.approx(expected, rel=5e-3)


def test_another_backbone_is_refused(place: Path, tiny_checkpoint: Callable[[str], Path]) -> None:
    extractor = elvis.Extractor(elvis.ExtractionSettings(backbone=str(tiny_checkpoint("dinov2")), longer_side=56))
    with (
        Index.open(place) as index,
        pytest.raises(IndexMismatch, match="longer_side=112, .*asked for is .*longer_side=56"),
    ):
        Searcher(index, extractor=extractor)


def test_bad_queries_are_named(place: Path, tmp_path: Path, collection: Path) -> None:
    (tmp_path / "no.jpg").write_bytes(b"not a picture")
    query = collection / "queries" / "thing1.jpg"
    with Index.open(place) as index:
        searcher = Searcher(index)
        with pytest.raises(UnreadableImage, match=r"no\.jpg"):
            searcher.search(tmp_path / "no.jpg")
        with pytest.raises(ValueError, match="top: expected at least 1, got 0"):
            searcher.search(query, top=0)
        with pytest.raises(ValueError, match="at least one picture"):
            searcher.search([])
        with pytest.raises(ValueError, match="single query picture"):
            searcher.search([query, query], crop=(0, 0, 0.5, 0.5))
        with pytest.raises(ValueError, match="fractions inside the picture"):
            searcher.search(query, crop=(0.9, 0, 0.5, 0.5))
        with pytest.raises(UnknownName, match="chamfer-ot"):
            Searcher(index, method="guess")
        with pytest.raises(ValueError, match="depth: expected at least 1"):
            Searcher(index, depth=0)


def test_explanations_come_from_stored_descriptors(place: Path, collection: Path) -> None:
    query = collection / "queries" / "thing6.jpg"
    with Index.open(place) as index:
        searcher = Searcher(index)
        best = searcher.search(query)[0]
        seen = searcher.explain(query, best.path)
        assert float(seen.score) == pytest.approx(best.score, rel=2e-3)
        with pytest.raises(ValueError, match="got global"):
            Searcher(index, method="global").explain(query, best.path)
