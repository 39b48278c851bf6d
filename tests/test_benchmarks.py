"""The benchmark's own parts: the published algorithm, the guard, the page."""

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from elvis.store.packing import batch, pack, unpack
from elvis.transport import reference


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1])


def test_published_algorithm_is_the_reference_in_float32():
    from benchmarks import published

    generator = torch.Generator().manual_seed(0)
    query, gallery = (F.normalize(torch.randn(*s, generator=generator), dim=-1) for s in ((1, 9, 8), (3, 7, 8)))
    query_gain, gallery_gain = (torch.randn(*s, generator=generator).tanh() for s in ((1, 9), (3, 7)))
    got = published.strengths(query, gallery, query_gain, gallery_gain, 1.5, 0.2, 4)
    plan = reference.sinkhorn(
        torch.einsum("bid,bjd->bij", query.expand(3, -1, -1).double(), gallery.double()),
        query_gain.double(),
        gallery_gain.double(),
        1.5,
        temperature=0.2,
        rounds=4,
        query_mask=torch.ones(1, 9, dtype=torch.bool),
        gallery_mask=torch.ones(3, 7, dtype=torch.bool),
    )
    torch.testing.assert_close(got[0].double(), plan.row_max, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(got[1].double(), plan.column_max, atol=1e-5, rtol=1e-4)


def record(**changed):
    line = {
        "suite": "transport",
        "machine": "a",
        "cpu": "A",
        "features": ["avx2"],
        "versions": {"torch": "2"},
        "commit": "0",
        "date": "2026-01-01",
        "variant": "kernel",
        "channels": 128,
        "threads": 1,
        "ratio": 30.0,
        "ratio_processor": 30.0,
        "ms_best": 0.25,
        "ms_p50": 0.3,
        "ms_p90": 0.4,
        "ms_processor": 0.25,
        "repeats": 20,
        "disturbed": False,
        "error": 1e-4,
        "error_with_storage": 2e-4,
    }
    return line | changed


def test_guard_fails_where_a_ratio_fell_by_a_fifth(tmp_path, monkeypatch, capsys):
    from benchmarks import results

    monkeypatch.setattr(results, "FOLDER", tmp_path)
    results.replace("transport", [record(), record(threads=2, ratio=40.0), record(machine="b", ratio=90.0)])
    assert results.guard("transport", [record(ratio=24.1), record(threads=2, ratio=50.0)]) == 0
    assert results.guard("transport", [record(ratio=23.9), record(threads=2, ratio=50.0)]) == 1
    assert "slower: kernel, D 128, 1 threads: 23.9x, committed 30.0x" in capsys.readouterr().out
    assert results.guard("transport", [record(ratio=1.0, disturbed=True)]) == 0
    assert results.guard("transport", [record(ratio=90.0, ratio_processor=1.0, disturbed=True)]) == 1
    assert results.guard("transport", [record(machine="c")]) == 2


def test_results_of_other_machines_are_kept(tmp_path, monkeypatch):
    from benchmarks import results

    monkeypatch.setattr(results, "FOLDER", tmp_path)
    results.replace("transport", [record(machine="a"), record(machine="b")])
    results.replace("transport", [record(machine="a", ratio=31.0)])
    lines = [json.loads(line) for line in (tmp_path / "transport.jsonl").read_text().splitlines()]
    assert sorted((line["machine"], line["ratio"]) for line in lines) == [("a", 31.0), ("b", 30.0)]


def test_page_shows_every_result(tmp_path, monkeypatch):
    from benchmarks import render, results

    monkeypatch.setattr(results, "FOLDER", tmp_path)
    monkeypatch.setattr(render, "PAGE", tmp_path / "docs" / "benchmarks.md")
    results.replace(
        "transport", [record(), record(threads=2, ratio=41.5, disturbed=True), record(channels=384, ratio=22.5)]
    )
    render.write()
    page = render.PAGE.read_text()
    for ratio in ("30.0", "41.5*", "22.5"):
        assert f"| {ratio} |" in page
    assert "<svg" in (tmp_path / "docs" / "benchmarks-transport-1.svg").read_text()


def test_whole_searches_of_a_small_made_up_index(tmp_path, monkeypatch):
    from benchmarks import search

    monkeypatch.setattr(search, "WARM", 2)
    built = search.build(tmp_path / "i", 20, "int8", places=30, channels=8)
    assert built["bytes"] > 20 * 30 * 8
    made = search.Made()
    made.dim = 8
    from elvis.search import Searcher
    from elvis.store import Index

    with Index.open(tmp_path / "i") as index:
        found = Searcher(index, extractor=made).search_described([search.picture(7, 30, 8)], top=3)
        assert found[0].path == "/made/00000007.jpg"
        assert {hit.path[:-5] for hit in index.nearest(search.picture(7, 30, 8).image_vector[0], 10)} == {
            "/made/0000000"
        }
    search.forget(tmp_path / "i")
    measured = search.measure_first_stage(tmp_path / "i", 20)
    assert measured["recall"] == 1


def test_growth_is_fitted_as_a_power():
    from benchmarks import sections

    power, at = sections.fitted([(1000, 4.0), (10_000, 40.0), (100_000, 400.0)])
    assert power == pytest.approx(1)
    assert at == pytest.approx(4000)


def test_suites_run_in_parts_keep_the_other_parts(tmp_path, monkeypatch):
    from benchmarks import results

    monkeypatch.setattr(results, "FOLDER", tmp_path)
    results.replace("search", [{"machine": "a", "variant": "float16", "pictures": size} for size in (10, 20)])
    results.replace("search", [{"machine": "a", "variant": "float16", "pictures": 20, "new": True}])
    lines = [json.loads(line) for line in (tmp_path / "search.jsonl").read_text().splitlines()]
    assert [(line["pictures"], line.get("new")) for line in lines] == [(10, None), (20, True)]


def test_int8_costs_as_an_index_stores_it():
    from benchmarks import accuracy
    from benchmarks.search import picture

    query, gallery = picture(1, 40, 16), picture(2, 40, 16)
    exact, small = (accuracy.AsStored(kind).score(query, gallery) for kind in ("float16", "int8"))
    assert exact != small
    stored = batch([unpack(pack(gallery, b"", "int8"), b"")], torch.ones(1, 2), torch.ones(1, 1))
    assert torch.equal(accuracy.as_int8(gallery.vectors), stored.vectors)
    torch.testing.assert_close(exact, small, rtol=1e-2, atol=0)
