"""Validation: the right questions, and AP as anyone would compute it."""

import numpy as np
import pytest
import torch

from elvis import load_model
from elvis.training import validation
from elvis.training.batches import stack
from elvis.training.validation import average_precisions, hand_made_methods, questions
from training_examples import tiny_config, toy_examples


def plain_ap(labels, query, ranked):
    hits = [rank for rank, other in enumerate(ranked[:100], 1) if labels[other] == labels[query]]
    positives = (labels == labels[query]).sum() - 1
    return sum((i + 1) / rank for i, rank in enumerate(hits)) / min(positives, 100)


def test_global_and_reranked_figures_are_those_of_a_plain_calculation():
    config = tiny_config(validation_queries=100, validation_depth=30)
    examples = toy_examples(config=config)
    asked = questions(examples, config)
    queries = np.flatnonzero(examples.held_out)
    assert asked.query_rows.tolist() == examples.views[queries, 0].tolist()
    ranked = [examples.neighbours.ids[query] for query in queries]
    expected = [plain_ap(examples.labels, query, row) for query, row in zip(queries, ranked, strict=True)]
    np.testing.assert_allclose(average_precisions(asked, None, config), expected)
    model = load_model("chamfer", standardise=True)
    for place, query in enumerate(queries):
        one, *others = (
            stack([examples.rows.vectors(examples.views[each, 0]).astype(np.float32)])
            for each in (query, *ranked[place][:30])
        )
        scores = np.array([float(model(one, other)) for other in others])
        head = ranked[place][:30][np.argsort(-scores, kind="stable")]
        expected[place] = plain_ap(examples.labels, query, [*head, *ranked[place][30:]])
    np.testing.assert_allclose(average_precisions(asked, model, config), expected, atol=0.02)


def test_memory_that_is_too_small_changes_nothing(monkeypatch):
    examples, config = toy_examples(), tiny_config()
    asked = questions(examples, config)
    model = hand_made_methods()["chamfer-ot@standardised"]
    before = average_precisions(asked, model, config)
    monkeypatch.setattr(validation, "HELD_BYTES", 0)
    np.testing.assert_array_equal(average_precisions(asked, model, config), before)


def test_queries_are_held_out_and_no_more_than_asked_for():
    config = tiny_config(validation_queries=5)
    examples = toy_examples(config=config)
    asked = questions(examples, config)
    assert len(asked) == 5
    assert set(asked.query_rows) <= set(examples.views[examples.held_out, 0])
    assert (asked.positives == 4).all()
    assert questions(toy_examples(config=tiny_config(holdout=0.0)), tiny_config(holdout=0.0)) is None


def test_without_labels_a_view_asks_for_its_picture():
    config = tiny_config(augmented_share=1.0, views=2)
    examples = toy_examples(labelled=False, config=config)
    asked = questions(examples, config)
    held = np.flatnonzero(examples.held_out)
    assert set(asked.query_rows) <= set(examples.views[held, 1])
    assert (asked.positives == 1).all()
    assert (asked.right.sum(axis=1) <= 1).all()
    for row, right, query in zip(asked.candidate_rows, asked.right, asked.query_rows, strict=True):
        picture = int(np.flatnonzero((examples.views == query).any(axis=1))[0])
        assert row[right].tolist() in ([examples.views[picture, 0]], [])


def test_the_methods_without_training_are_all_there():
    methods = hand_made_methods()
    assert list(methods) == ["chamfer@raw", "chamfer@standardised", "chamfer-ot@raw", "chamfer-ot@standardised"]
    assert not any(any(True for _ in model.parameters()) for model in methods.values())
    picture = stack([torch.randn(4, 6).numpy()])
    assert len({round(float(model(picture, picture)), 3) for model in methods.values()}) >= 3


def test_progress_is_told_once_a_query():
    asked, told = questions(toy_examples(), tiny_config()), []
    average_precisions(asked, None, tiny_config(), on_query=lambda: told.append(1))
    assert len(told) == len(asked) == pytest.approx(12)
