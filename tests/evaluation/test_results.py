"""Result lines: written, replaced, read back, refused."""

import json
import re
import subprocess

import numpy as np
import pytest

from elvis.errors import CacheError
from elvis.evaluation.results import (
    Result,
    library_code,
    library_commit,
    load_results,
    save_results,
    split_queries,
)

nan = float("nan")


def result(method="global", dataset="toys", ap=(1.0, 0.5, nan), **more):
    ap = np.array(ap)
    return Result(dataset, "", more.pop("split", ""), method, True, "mAP@100", ap, ap / 2, more)


def lines(folder):
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


def test_a_line_says_all_that_the_figure_depends_on(tmp_path):
    save_results(tmp_path, [result(depth=400, extraction={"block": -2})])
    (line,) = lines(tmp_path)
    assert line == {
        "dataset": "toys",
        "judgement": "",
        "split": "",
        "method": "global",
        "hand_made": True,
        "metric": "mAP@100",
        "map": 75.0,
        "first_stage_recall": 37.5,
        "counted_queries": 2,
        "depth": 400,
        "extraction": {"block": -2},
        "per_query": "queries/toys-global.json",
    }


def test_results_come_back(tmp_path):
    saved = [result(), result("chamfer", ap=(0.1, 1 / 3, nan), depth=5), result(split="night")]
    save_results(tmp_path, saved)
    found = load_results(tmp_path)
    assert [each.identity for each in found] == [each.identity for each in saved]
    for one, other in zip(saved, found, strict=True):
        np.testing.assert_array_equal(one.ap, other.ap)
        np.testing.assert_array_equal(one.recall, other.recall)
        assert one.line() == other.line()


def test_a_newer_result_replaces_the_older_in_its_place(tmp_path):
    save_results(tmp_path, [result(), result("chamfer")])
    save_results(tmp_path, [result(ap=(0.0, 0.5, nan))])
    assert [(line["method"], line["map"]) for line in lines(tmp_path)] == [("global", 25.0), ("chamfer", 75.0)]
    assert len(list((tmp_path / "queries").iterdir())) == 2


def test_files_of_queries_have_harmless_names(tmp_path):
    save_results(tmp_path, [result("elvis:my/head", "Gänse: früh")])
    (line,) = lines(tmp_path)
    assert (tmp_path / line["per_query"]).is_file()
    assert (tmp_path / line["per_query"]).parent == tmp_path / "queries"


@pytest.mark.parametrize("text", ["{", "3", "{}", '{"dataset": "toys"}'])
def test_a_line_that_is_no_result_is_named(tmp_path, text):
    save_results(tmp_path, [result()])
    with (tmp_path / "results.jsonl").open("a") as stream:
        stream.write(text + "\n")
    for use in (lambda: load_results(tmp_path), lambda: save_results(tmp_path, [result()])):
        with pytest.raises(CacheError, match=re.escape("results.jsonl, line 2 is no result")):
            use()


def test_lost_queries_are_named(tmp_path):
    save_results(tmp_path, [result()])
    (tmp_path / "queries" / "toys-global.json").unlink()
    with pytest.raises(CacheError, match="line 1: its queries cannot be read"):
        load_results(tmp_path)


def test_no_results_yet(tmp_path):
    assert load_results(tmp_path) == []


def test_splits():
    names = ["images/day_1.jpg", "images/night_1.jpg", "images/x.jpg"]
    groups = split_queries(names, "(day|night)_")
    assert {name: members.tolist() for name, members in groups.items()} == {
        "day": [True, False, False],
        "night": [False, True, False],
        "other": [False, False, True],
    }
    assert list(split_queries(names, "images/(x)?")) == ["other", "x"]
    with pytest.raises(ValueError, match="no regular expression"):
        split_queries(names, "(")


def test_the_commit_is_gits():
    found = library_commit()
    if found is None:
        pytest.skip("not a checkout")
    here = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=__import__("elvis").__path__[0], capture_output=True, text=True
    )
    assert found.removesuffix("+changes") == here.stdout.strip()


def test_the_code_has_one_name_at_a_time():
    assert re.fullmatch("[0-9a-f]{64}", library_code())
