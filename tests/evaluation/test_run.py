"""A whole run: results, rankings that an independent calculation agrees with, kills, wrong folders."""

import json
import math
import multiprocessing
import os
import signal
import sys
import time

import numpy as np
import pytest
from PIL import Image

from elvis.errors import CacheError, DataSetError
from elvis.evaluation.benchmark import EvaluationSettings
from elvis.evaluation.datasets import load_benchmark
from elvis.evaluation.methods import Method, load_methods
from elvis.evaluation.results import load_results
from elvis.evaluation.run import Contender, run
from elvis.models import Chamfer, ChamferConfig


def contenders(extractor, names=("global", "chamfer", "chamfer-ot@raw")):
    return [Contender(method, extractor, {"cells": 16}) for method in load_methods(names)]


def figures(results):
    return {result.identity: result.map for result in results}


def from_rankings(file, folder):
    """mAP@100 by method from the ranking file and images.csv alone, as an outsider would compute it."""
    rows = [line.split(",") for line in (folder / "images.csv").read_text().splitlines()[1:]]
    label = {row[0]: row[2] for row in rows}
    junk = {row[0]: set(filter(None, row[3].split(";"))) for row in rows}
    aps = {}
    for text in file.read_text("utf-8").splitlines():
        line = json.loads(text)
        query = line["query"]
        pairs = sorted(zip(line["ranked"], line["scores"], strict=True), key=lambda pair: -pair[1])
        assert [name for name, _ in pairs] == line["ranked"]
        kept = [name for name, _ in pairs if name != query and label[name] not in junk[query]]
        positives = sum(row[2] == label[query] and row[1] != "query" and row[0] != query for row in rows)
        if not positives:
            continue
        hits = [rank for rank, name in enumerate(kept[:100], 1) if label[name] == label[query]]
        ap = math.fsum((i + 1) / rank for i, rank in enumerate(hits)) / min(positives, 100)
        aps.setdefault(line["method"], []).append(ap)
    return {method: 100 * float(np.mean(values)) for method, values in aps.items()}


def test_figures_agree_with_an_independent_calculation_from_the_rankings(toys, extractor, tmp_path):
    file = tmp_path / "new" / "rankings.jsonl"
    results = run([load_benchmark(toys)], contenders(extractor), tmp_path / "cache", rankings=file)
    expected = from_rankings(file, toys)
    assert {result.method: result.map for result in results} == pytest.approx(expected)
    assert set(expected) == {"global", "chamfer", "chamfer-ot@raw"}
    assert extractor.extracted == 15
    line = json.loads(file.read_text().splitlines()[0])
    assert set(line) == {"dataset", "judgement", "method", "query", "ranked", "scores", "reranked"}
    assert not list(file.parent.glob(".*"))


def test_junk_and_splits(make_folder, extractor, tmp_path):
    rows = [
        (f"{time}/{seed}-{variant}.png", "query", str(seed), str((seed + 1) % 5))
        for seed in range(5)
        for time, variant in (("day", 1), ("night", 2))
    ]
    folder = make_folder([*rows, *((f"{seed}.png", "database", str(seed), "") for seed in range(5))])
    file = tmp_path / "rankings"
    results = run([load_benchmark(folder)], contenders(extractor), tmp_path / "cache", rankings=file, split_by="^[^/]+")
    found = {(result.method, result.split): result for result in results}
    assert from_rankings(file, folder) == pytest.approx(
        {method: result.map for (method, split), result in found.items() if not split}
    )
    for method in ("global", "chamfer"):
        whole, day, night = (found[method, split] for split in ("", "day", "night"))
        assert whole.map == pytest.approx((day.map + night.map) / 2)
        assert day.line()["counted_queries"] == night.line()["counted_queries"] == 5


def test_a_data_set_that_does_not_split_is_reported_as_a_whole(toys, extractor, tmp_path):
    results = run([load_benchmark(toys)], contenders(extractor), tmp_path / "cache", split_by="day|night")
    assert {result.split for result in results} == {""}


def test_results_are_saved_with_all_they_depend_on(toys, extractor, tmp_path):
    out = tmp_path / "out"
    results = run(
        [load_benchmark(toys)], contenders(extractor), tmp_path / "cache", EvaluationSettings(depth=7), out=out
    )
    assert figures(load_results(out)) == pytest.approx(figures(results))
    line = json.loads((out / "results.jsonl").read_text().splitlines()[1])
    assert (line["dataset"], line["method"], line["metric"]) == ("toys", "chamfer", "mAP@100")
    assert line["map"] == pytest.approx(results[1].map, abs=1e-4)
    assert line["depth"] == line["evaluation"]["depth"] == 7
    assert line["model_settings"] == {"standardise": True}
    assert line["extraction"] == {"cells": 16}
    assert (line["queries"], line["gallery"], line["missing"]) == (12, 15, 0)
    for name in ("elvis", "torch", "device", "precision", "threads", "started", "seconds", "code", "commit"):
        assert name in line, name
    for name in ("dataset_fingerprint", "extraction_fingerprint", "model_fingerprint", "pictures"):
        assert len(line[name]) >= 32, name


def test_a_second_run_gives_the_same_lines(toys, extractor, tmp_path):
    out = tmp_path / "out"
    for _ in range(2):
        run([load_benchmark(toys)], contenders(extractor), tmp_path / "cache", out=out)
    assert len((out / "results.jsonl").read_text().splitlines()) == 3
    assert extractor.extracted == 15


def test_a_changed_picture_is_not_measured_with_old_scores(toys, extractor, tmp_path):
    out = tmp_path / "out"
    before = run([load_benchmark(toys)], contenders(extractor), tmp_path / "cache", out=out)
    (toys / "images" / "1-1.png").write_bytes((toys / "images" / "2-1.png").read_bytes())
    after = run([load_benchmark(toys)], contenders(extractor), tmp_path / "cache", out=out)
    fresh = run([load_benchmark(toys)], contenders(extractor), tmp_path / "cache")
    assert figures(after) == figures(fresh) != figures(before)


def test_extractors_of_equal_fingerprint_share_descriptors_and_others_do_not(toys, extractor, tmp_path):
    one, same, other = (type(extractor)() for _ in range(3))
    other.fingerprint = "f" * 64
    chamfer, raw, base = load_methods(["chamfer", "chamfer@raw", "global"])
    run(
        [load_benchmark(toys)],
        [Contender(chamfer, one), Contender(raw, same), Contender(base, other)],
        tmp_path / "cache",
    )
    assert (one.extracted, same.extracted, other.extracted) == (15, 0, 15)


def test_what_cannot_work_is_refused_before_any_work(toys, extractor, tmp_path):
    benchmark = load_benchmark(toys)

    def attempt(benchmarks, chosen, **more):
        run(benchmarks, chosen, tmp_path / "cache", **more)

    with pytest.raises(ValueError, match="data sets: expected every name once, got toys again"):
        attempt([benchmark, benchmark], contenders(extractor))
    with pytest.raises(ValueError, match="methods: expected every name once, got global again"):
        attempt([benchmark], contenders(extractor) + contenders(extractor, ["global"]))
    with pytest.raises(ValueError, match="data sets: expected at least one"):
        attempt([], contenders(extractor))
    with pytest.raises(ValueError, match="methods: expected at least one"):
        attempt([benchmark], [])
    with pytest.raises(ValueError, match="no regular expression"):
        attempt([benchmark], contenders(extractor), split_by="(")
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError, match="cannot be"):
        attempt([benchmark], contenders(extractor), rankings=tmp_path / "file" / "rankings")
    with pytest.raises(CacheError, match="is a folder: name a file"):
        attempt([benchmark], contenders(extractor), rankings=tmp_path)
    with pytest.raises(CacheError, match="cannot be"):
        attempt([benchmark], contenders(extractor), out=tmp_path / "file")
    from elvis.models import Elvis, ElvisConfig

    wide = Method("elvis", Elvis(ElvisConfig(input_dim=384, dim=8)), hand_made=False)
    with pytest.raises(ValueError, match="expected 384 channels as the head was trained with, got 12"):
        attempt([benchmark], [Contender(wide, extractor)])
    assert extractor.extracted == 0


def test_a_folder_in_which_nothing_can_be_measured_is_refused(make_folder, extractor, tmp_path):
    rows = [("1-1.png", "query", "1", ""), ("1-2.png", "database", "1", ""), ("2.png", "query", "2", "")]
    folder = make_folder(rows)
    for damaged, message in (
        ("1-1.png", "toys: every query that has a right picture is missing or unreadable"),
        ("1-2.png", "toys: not one database picture can be read, as 1-1.png: "),
        ("2.png", "toys: not one query can be read, as 1-1.png: "),
    ):
        (folder / damaged).write_bytes(b"no picture")
        if damaged == "2.png":
            make_picture_again(folder / "1-2.png")
        with pytest.raises(DataSetError, match=message):
            run([load_benchmark(folder)], contenders(extractor, ["global"]), tmp_path / "cache")


def make_picture_again(file):
    Image.new("RGB", (8, 8), "red").save(file)


class SlowChamfer(Chamfer):
    def score(self, query, gallery):
        time.sleep(0.05)
        return super().score(query, gallery)


def run_slowly(folder, cache, out, extractor):
    slow = Method("chamfer", SlowChamfer(ChamferConfig(standardise=True)).eval(), hand_made=True)
    run([load_benchmark(folder)], [Contender(slow, extractor)], cache, out=out)


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is a matter of POSIX")
@pytest.mark.parametrize("scored", [pytest.param(2, id="early"), pytest.param(9, id="late", marks=pytest.mark.slow)])
def test_a_killed_run_goes_on_where_it_stopped(toys, extractor, tmp_path, scored):
    cache, out = tmp_path / "cache", tmp_path / "out"
    process = multiprocessing.get_context("spawn").Process(target=run_slowly, args=(toys, cache, out, extractor))
    process.start()
    deadline = time.monotonic() + 120
    while sum(file.read_bytes().count(b"\n") for file in out.glob("scores/*.jsonl")) < 1 + scored:
        assert time.monotonic() < deadline, "the run did not get so far"
        assert process.is_alive()
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert not (out / "results.jsonl").exists()
    reports = []
    results = run(
        [load_benchmark(toys)], contenders(extractor, ["chamfer"]), cache, out=out, on_progress=reports.append
    )
    assert extractor.extracted == 0
    # Queries that were scored before the kill are skipped: no pace is known from them.
    assert sum(report.seconds_left is None for report in reports if "chamfer" in report.stage) >= scored
    fresh = run([load_benchmark(toys)], contenders(extractor, ["chamfer"]), cache)
    assert figures(results) == figures(fresh)


def test_progress_is_told_with_the_time_left(toys, extractor, tmp_path):
    reports = []
    run([load_benchmark(toys)], contenders(extractor), tmp_path / "cache", on_progress=reports.append)
    last = {report.stage: report for report in reports}
    assert list(last) == ["toys: descriptors", "toys: global", "toys: chamfer", "toys: chamfer-ot@raw"]
    assert all(report.done == report.total and report.seconds_left == 0 for report in last.values())
