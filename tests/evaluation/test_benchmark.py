"""The harness against the same thing done by hand, picture by picture."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from elvis.evaluation.benchmark import EvaluationSettings, average_precision, evaluate, first_stage
from elvis.evaluation.cache import DescriptorCache
from elvis.evaluation.datasets import Judgement, Protocol, load_benchmark
from elvis.evaluation.gather import exact_fingerprint, gather
from elvis.evaluation.metrics import places, rectangular_ap
from elvis.images import open_image
from elvis.models import Chamfer, ChamferConfig, ChamferTransport


@pytest.fixture
def collect(tmp_path, extractor):
    def collect(folder):
        cache = DescriptorCache(tmp_path / "cache", exact_fingerprint(extractor), {})
        return gather(load_benchmark(folder), extractor, cache)

    return collect


def by_hand(folder, extractor, model, depth, cutoff=100):
    """AP of every query by the README of the format, without any of the harness."""
    rows = [line.split(",") for line in (folder / "images.csv").read_text().splitlines()[1:]]
    images = [open_image(folder / row[0]) for row in rows]
    raw = list(extractor.extract(images))
    aps = {}
    for i, (path, role, label, junk) in enumerate(rows):
        if role not in ("query", "both"):
            continue
        candidates = (
            [
                j
                for j, (other, its_role, its_label, _) in enumerate(rows)
                if its_role in ("database", "both") and other != path and its_label not in junk.split(";")
            ]
            if junk
            else [j for j, row in enumerate(rows) if row[1] in ("database", "both") and row[0] != path]
        )
        similar = [float(raw[i].image_vector[0] @ raw[j].image_vector[0]) for j in candidates]
        order = [candidates[k] for k in np.argsort(-np.array(similar), kind="stable")]
        if model is not None:
            score = {j: float(model(raw[i], raw[j])) for j in order[:depth]}
            order = sorted(order[:depth], key=lambda j: -score[j]) + order[depth:]
        right = [rows[j][2] == label for j in order]
        total = sum(right)
        hits = precision = 0
        for rank, good in enumerate(right[:cutoff], 1):
            hits += good
            precision += good * hits / rank
        aps[path] = precision / min(total, cutoff) if total else float("nan")
    return aps


@pytest.mark.parametrize("depth", [1, 4, 400])
@pytest.mark.parametrize("model", [None, Chamfer(), ChamferTransport(ChamferConfig(standardise=True))])
def test_every_querys_ap_is_what_comes_out_by_hand(toys, extractor, collect, model, depth):
    collection = collect(toys)
    settings = EvaluationSettings(depth=depth, pairs=3)
    (outcome,) = evaluate(collection, first_stage(collection, settings), model, settings)
    expected = by_hand(toys, extractor, model, depth)
    names = [picture.name for picture in collection.benchmark.queries]
    assert dict(zip(names, outcome.ap, strict=True)) == pytest.approx(expected)


def test_junk_leaves_before_the_shortlist(make_folder, extractor, collect):
    # Object 0 is asked for; its look-alike views 0-3 to 0-6 are junk and would fill a shortlist of 2.
    rows = [("0-1.png", "query", "x", "j"), ("0-2.png", "database", "x", "")]
    rows += [(f"0-{variant}.png", "database", "j", "") for variant in range(3, 7)]
    rows += [(f"{seed}.png", "database", "y", "") for seed in range(50, 56)]
    collection = collect(make_folder(rows))
    settings = EvaluationSettings(depth=2)
    start = first_stage(collection, settings)
    (outcome,) = evaluate(collection, start, Chamfer(), settings)
    (ranking,) = outcome.rankings
    assert ranking.reranked == 2
    assert len(ranking.ranked) == 7
    assert not set(ranking.ranked.tolist()) & {1, 2, 3, 4}
    assert outcome.ap.tolist() == pytest.approx(
        [*by_hand(make_folder(rows, "again"), extractor, Chamfer(), 2).values()]
    )


def test_scores_never_rise_and_the_tail_keeps_its_order(toys, collect):
    collection = collect(toys)
    settings = EvaluationSettings(depth=5)
    start = first_stage(collection, settings)
    (before,) = evaluate(collection, start, None, settings)
    (after,) = evaluate(collection, start, Chamfer(), settings)
    for one, other in zip(before.rankings, after.rankings, strict=True):
        assert sorted(one.ranked[:5]) == sorted(other.ranked[:5])
        assert one.ranked[5:].tolist() == other.ranked[5:].tolist()
        assert (np.diff(other.scores) <= 0).all()
        assert (np.diff(one.scores) <= 0).all()
        assert len(other.scores) == len(other.ranked) == 14
        assert (one.reranked, other.reranked) == (0, 5)


def test_scores_in_half_precision_are_the_models_own(toys, extractor, collect):
    collection = collect(toys)
    settings = EvaluationSettings()
    model = ChamferTransport()
    (outcome,) = evaluate(collection, first_stage(collection, settings), model, settings)
    ranking = outcome.rankings[0]
    benchmark, read = collection.benchmark, collection.cache.read
    query = read(collection.keys[benchmark.queries[ranking.query]])
    with torch.inference_mode():
        exact = [float(model(query, read(collection.keys[benchmark.gallery[place]]))) for place in ranking.ranked]
    assert ranking.scores.tolist() == pytest.approx(exact, rel=2e-3)


def test_a_missing_positive_still_counts_and_a_missing_query_is_not_asked(make_folder, collect):
    rows = [(f"0-{variant}.png", "both", "0", "") for variant in (1, 2, 3)]
    collection = collect(make_folder(rows, absent=("0-3.png",)))
    settings = EvaluationSettings()
    (outcome,) = evaluate(collection, first_stage(collection, settings), None, settings)
    # One of two positives is there: half of what was possible.
    assert outcome.ap[:2].tolist() == [0.5, 0.5]
    assert np.isnan(outcome.ap[2])
    assert [ranking.query for ranking in outcome.rankings] == [0, 1]
    assert outcome.recall[:2].tolist() == [0.5, 0.5]


def test_a_singleton_does_not_count(make_folder, collect):
    rows = [("0-1.png", "both", "0", ""), ("0-2.png", "both", "0", ""), ("7.png", "both", "7", "")]
    collection = collect(make_folder(rows))
    settings = EvaluationSettings()
    (outcome,) = evaluate(collection, first_stage(collection, settings), None, settings)
    assert np.isnan(outcome.ap[2])
    assert np.isnan(outcome.recall[2])


def test_a_query_in_the_database_behind_a_duplicate_of_it(make_folder, collect):
    # 5-1 and its copy 5-2 have equal vectors; the query is left out by identity, wherever it stands.
    folder = make_folder([("5-2.png", "both", "5", ""), ("5-1.png", "both", "5", ""), ("8.png", "database", "8", "")])
    (folder / "5-2.png").write_bytes((folder / "5-1.png").read_bytes())
    collection = collect(folder)
    settings = EvaluationSettings()
    (outcome,) = evaluate(collection, first_stage(collection, settings), Chamfer(), settings)
    assert [ranking.ranked[0] for ranking in outcome.rankings] == [1, 0]
    assert outcome.ap.tolist() == [1.0, 1.0]


def test_recall_is_that_of_the_first_stage(toys, collect):
    collection = collect(toys)
    start = first_stage(collection, EvaluationSettings())
    for depth in (1, 14):
        settings = EvaluationSettings(depth=depth)
        (outcome,) = evaluate(collection, start, Chamfer(), settings)
        assert set(outcome.recall) <= {0.0, 1.0}
        assert (outcome.recall == 1).all() or depth == 1


def test_each_judgement_has_rankings_of_its_own(toys, collect):
    collection = collect(toys)
    only = collection.benchmark.judgements[0]
    nobody = tuple(np.empty(0, np.int64) for _ in only.positives)
    both = replace(
        collection.benchmark, judgements=(Judgement("medium", only.positives, nobody), replace(only, name="hard"))
    )
    collection = replace(collection, benchmark=both)
    settings = EvaluationSettings()
    medium, hard = evaluate(collection, first_stage(collection, settings), Chamfer(), settings)
    assert (medium.judgement, hard.judgement) == ("medium", "hard")
    # Under "medium" the query itself is in its ranking, and first.
    assert len(medium.rankings[0].ranked) == 15
    assert len(hard.rankings[0].ranked) == 14
    assert hard.ap.mean() > medium.ap.mean()


def test_a_long_gallery_is_ranked_as_far_as_needed(toys, collect, monkeypatch):
    collection = collect(toys)
    whole = first_stage(collection, EvaluationSettings(depth=3))
    short = replace(collection.benchmark, protocol=replace(collection.benchmark.protocol, cutoff=2))
    collection = replace(collection, benchmark=short)
    monkeypatch.setattr("elvis.evaluation.benchmark.WHOLE_RANKING", 10)
    part = first_stage(collection, EvaluationSettings(depth=3))
    assert {len(row) for row in part.ranked} == {4}  # the depth, and one for the query itself
    for one, other in zip(whole.ranked, part.ranked, strict=True):
        assert one[:4].tolist() == other.tolist()


def test_a_run_goes_on_from_kept_scores(toys, collect, tmp_path):
    class Once(Chamfer):
        calls = 0

        def score(self, query, gallery):
            type(self).calls += 1
            if type(self).calls == 8:
                raise KeyboardInterrupt
            return super().score(query, gallery)

    collection = collect(toys)
    settings = EvaluationSettings()
    start = first_stage(collection, settings)
    keep = (tmp_path, {"depends": "on this"})
    with pytest.raises(KeyboardInterrupt):
        evaluate(collection, start, Once(), settings, keep=keep)
    (resumed,) = evaluate(collection, start, Once(), settings, keep=keep)
    assert Once.calls == 8 + 5  # seven queries were kept, five of twelve were left
    (fresh,) = evaluate(collection, start, Chamfer(), settings)
    assert resumed.ap.tolist() == fresh.ap.tolist()
    assert [r.scores.tolist() for r in resumed.rankings] == [r.scores.tolist() for r in fresh.rankings]
    (file,) = tmp_path.glob("*.jsonl")
    assert json.loads(file.read_text().splitlines()[0])["depends"] == "on this"


def test_average_precision_takes_the_form_of_the_protocol():
    ranked, positives = np.array([4, 1, 2, 9]), np.array([1, 2])
    form = lambda metric, cutoff: Protocol(metric, cutoff, "", "", "", "")  # noqa: E731
    assert average_precision(form("rectangular", 100), ranked, positives) == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert average_precision(form("rectangular", 2), ranked, positives) == pytest.approx(1 / 2 / 2)
    assert average_precision(form("trapezoidal", None), ranked, positives) == pytest.approx((1 / 2 + 1 / 2 + 2 / 3) / 4)
    assert average_precision(form("ilias", 1000), ranked, positives) == pytest.approx((1 / 2 + 2 / 3) / 2)
    for metric in ("rectangular", "trapezoidal", "ilias"):
        assert np.isnan(average_precision(form(metric, 100), ranked, np.empty(0, np.int64)))


def test_wrong_settings():
    with pytest.raises(ValueError, match="depth: expected at least 1, got 0"):
        EvaluationSettings(depth=0)


def test_places_and_ap_of_the_harness_are_those_of_the_metrics(toys, collect):
    collection = collect(toys)
    settings = EvaluationSettings()
    start = first_stage(collection, settings)
    (outcome,) = evaluate(collection, start, None, settings)
    judgement = collection.benchmark.judgements[0]
    for query, ap in enumerate(outcome.ap):
        found = places(start.ranked[query], judgement.positives[query], judgement.ignored[query])
        assert ap == rectangular_ap(found, len(judgement.positives[query]))
