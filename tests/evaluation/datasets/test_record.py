"""The record of a data set."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from elvis.evaluation.datasets import DATASETS, Benchmark, Judgement, Picture, Protocol

PROTOCOL = DATASETS["folder"].protocol


def ids(*values):
    return np.array(values, np.int64)


def benchmark(**changes):
    start = Benchmark(
        name="toys",
        queries=(Picture("q.jpg", Path("q.jpg")),),
        gallery=(Picture("a.jpg", Path("a.jpg")), Picture("b.jpg", Path("b.jpg"))),
        judgements=(Judgement("", (ids(0),), (ids(1),)),),
        protocol=PROTOCOL,
    )
    return replace(start, **changes)


@pytest.mark.parametrize(
    ("judgement", "message"),
    [
        (Judgement("", (), ()), r"positives: expected one row a query \(1\), got 0"),
        (Judgement("", (ids(),), ()), r"ignored: expected one row a query \(1\), got 0"),
        (Judgement("", (ids(2),), (ids(),)), "positives: expected places in a gallery of 2"),
        (Judgement("", (ids(),), (ids(-1),)), "ignored: expected places in a gallery of 2"),
    ],
)
def test_judgements_that_do_not_fit_are_refused(judgement, message):
    with pytest.raises(ValueError, match=message):
        benchmark(judgements=(judgement,))


def test_the_fingerprint_is_of_all_that_a_ranking_depends_on():
    start = benchmark()
    changed = [
        benchmark(gallery=start.gallery[::-1]),
        benchmark(queries=(Picture("q.jpg", Path("q.jpg"), (0, 0, 0.5, 1)),)),
        benchmark(judgements=(Judgement("hard", (ids(0),), (ids(1),)),)),
        benchmark(judgements=(Judgement("", (ids(0, 1),), (ids(),)),)),
        benchmark(judgements=(Judgement("", (ids(0),), (ids(),)),)),
        benchmark(missing=frozenset({"a.jpg"})),
    ]
    assert len({start.fingerprint, *(each.fingerprint for each in changed)}) == 7
    # Where the folder lies, and what it is called, is no matter.
    moved = (Picture("q.jpg", Path("/elsewhere/q.jpg")),)
    assert benchmark(queries=moved, name="other").fingerprint == start.fingerprint


def test_the_summary_names_a_few_of_the_missing():
    text = benchmark(missing=frozenset("dcba")).summary()
    assert text.endswith("; 4 pictures missing or unreadable ('a', 'b', 'c', …)")


@pytest.mark.parametrize(
    ("metric", "cutoff", "name"),
    [("rectangular", 100, "mAP@100"), ("trapezoidal", None, "mAP (trapezoidal)"), ("ilias", 1000, "mAP@1000")],
)
def test_metrics_name_themselves(metric, cutoff, name):
    assert Protocol(metric, cutoff, "", "", "", "").metric_name == name


def test_every_adapter_says_how_it_is_measured():
    for adapter in DATASETS.values():
        protocol = adapter.protocol
        assert all((protocol.junk, protocol.cropping, protocol.licence, protocol.source, adapter.summary))
