"""Batches: functions of the step, split over processes without a difference."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from elvis.errors import TrainingError
from elvis.training.batches import BatchMaker, restyled, some_descriptors
from elvis.training.triplets import UNLABELLED
from training_examples import tiny_config, toy_examples


def as_sets(batch):
    """What each anchor meets, independent of how candidates are numbered."""
    return {
        anchor.numpy().tobytes(): [batch.others.vectors[c].numpy().tobytes() for c in row]
        for anchor, row in zip(batch.anchors.vectors, batch.candidates, strict=True)
    }


@pytest.fixture(scope="module")
def examples():
    return toy_examples()


def test_a_step_is_the_same_every_time_and_other_than_the_next(examples):
    config = tiny_config(augmented_share=0.5, views=2, style_jitter=0.5)
    one, other = (BatchMaker(examples, config) for _ in range(2))
    assert as_sets(one.batch(7)) == as_sets(other.batch(7)) != as_sets(one.batch(8))
    assert as_sets(one.batch(7)) != as_sets(BatchMaker(examples, replace(config, seed=1)).batch(7))
    ahead = list(one.from_step(57))
    assert [as_sets(batch) for batch in ahead] == [as_sets(other.batch(step)) for step in (57, 58, 59)]


@pytest.mark.parametrize("world", [2, 3, 8])
@pytest.mark.parametrize("loss", ["bce", "listwise"])
def test_processes_share_the_batch_of_one(examples, world, loss):
    config = tiny_config(augmented_share=0.5, views=2, style_jitter=0.5, loss=loss)
    whole = as_sets(BatchMaker(examples, config).batch(3))
    parts = [BatchMaker(examples, config, rank=rank, world=world).batch(3) for rank in range(world)]
    assert all(part.total == 8 for part in parts)
    together = {}
    for part in parts:
        mine = as_sets(part)
        assert not together.keys() & mine.keys()
        together |= mine
    assert together == whole


def test_a_process_without_an_anchor_counts_nothing(examples):
    config = tiny_config(triplets=2)
    part = BatchMaker(examples, config, rank=2, world=3).batch(0)
    assert part.total == 2
    assert not part.real.any()


def test_an_epoch_meets_every_valid_anchor_once_and_keeps_the_rest(examples):
    maker = BatchMaker(examples, tiny_config(epochs=2, triplets=9))
    assert maker.steps == 2 * maker.epoch_steps
    for epoch in range(2):
        steps = range(epoch * maker.epoch_steps, (epoch + 1) * maker.epoch_steps)
        sizes = [len(maker.triplets(step).rows) for step in steps]
        met = np.concatenate([maker.triplets(step).pictures[:, 0] for step in steps])
        assert sizes == [9] * (maker.anchors // 9) + [maker.anchors % 9]
        assert sorted(met.tolist()) == sorted(np.flatnonzero(~examples.held_out).tolist())


def test_triplets_are_of_trained_objects_and_augmented_ones_of_two_views(examples):
    config = tiny_config(augmented_share=0.5, views=2)
    maker = BatchMaker(examples, config)
    for step in range(20):
        triplets = maker.triplets(step)
        labels = examples.labels[triplets.pictures]
        assert not examples.held_out[triplets.pictures].any()
        assert (labels[:, 0] == labels[:, 1]).all()
        assert (labels[:, 0] != labels[:, 2]).all()
        labelled = triplets.pictures[:4]
        assert (labelled[:, 0] != labelled[:, 1]).all()
        assert (triplets.rows[:4] == examples.views[labelled, 0]).all()
        augmented, rows = triplets.pictures[4:], triplets.rows[4:]
        assert (augmented[:, 0] == augmented[:, 1]).all()
        assert (rows[:, 0] != rows[:, 1]).all()
        assert all(row in examples.views[picture] for row, picture in zip(rows.flat, augmented.flat, strict=True))


def test_company_never_shows_the_anchors_object(examples):
    maker = BatchMaker(examples, tiny_config(augmented_share=0.5, views=2))
    for step in range(10):
        triplets = maker.triplets(step)
        slots, real = maker._candidates(triplets, step)
        assert slots[:, 0].tolist() == list(range(0, 16, 2))
        shown = examples.labels[triplets.pictures[:, 1:].ravel()][slots]
        anchors = examples.labels[triplets.pictures[:, :1]]
        assert (shown[:, :1] == anchors).all()
        assert ((shown[:, 1:] != anchors) | ~real[:, 1:]).all()
        assert all(len(set(row[ok])) == ok.sum() for row, ok in zip(slots, real, strict=True))


def test_few_pictures_leave_candidates_out():
    examples = toy_examples(objects=2, pictures=3, config=tiny_config(holdout=0.0))
    maker = BatchMaker(examples, tiny_config(triplets=2, holdout=0.0, batch_negatives=6))
    batch = maker.batch(0)
    assert batch.candidates.shape == (2, 8)
    assert batch.real[:, :2].all()
    assert not batch.real.all()


def test_numbers_of_descriptors_are_drawn_in_the_range(examples):
    maker = BatchMaker(examples, tiny_config(descriptors=[3, 5]))
    sizes = {(b.anchors.vectors.shape[1], b.others.vectors.shape[1]) for b in map(maker.batch, range(60))}
    assert sizes == {(m, n) for m in (3, 4, 5) for n in (3, 4, 5)}


def test_the_strongest_come_first_and_chance_takes_others(examples):
    rng = np.random.default_rng(0)
    every = examples.rows.vectors(4).astype(np.float32)
    strongest = some_descriptors(examples.rows, 4, 6, None, jitter=0, jitter_rng=rng)
    np.testing.assert_array_equal(strongest, every[:6])
    chosen = some_descriptors(examples.rows, 4, 6, rng, jitter=0, jitter_rng=rng)
    places = [int(np.flatnonzero((every == one).all(axis=1))[0]) for one in chosen]
    assert len(set(places)) == 6
    assert places != list(range(6))
    assert len(some_descriptors(examples.rows, 4, 99, rng, jitter=0, jitter_rng=rng)) == len(every)


def test_restyling_changes_all_descriptors_of_a_picture_alike():
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((50, 400)).astype(np.float32)
    changed = restyled(vectors, 0.8, rng)

    # Each channel went through one straight line: standardised per picture, nothing has happened.
    def standardised(x):
        return (x - x.mean(axis=0)) / x.std(axis=0)

    np.testing.assert_allclose(standardised(changed), standardised(vectors), atol=1e-4)
    factor = changed.std(axis=0) / vectors.std(axis=0)
    assert np.log(factor).std() == pytest.approx(0.8, rel=0.15)
    offset = (changed - vectors * factor).mean(axis=0) / vectors.std(axis=0)
    assert offset.std() == pytest.approx(0.8, rel=0.15)


def test_style_reaches_the_share_of_pictures_that_was_asked_for(examples):
    plain, jittered = (BatchMaker(examples, tiny_config(style_jitter=k, style_share=0.7)).batch for k in (0.0, 1.0))
    changed = [
        not torch.equal(a, b)
        for step in range(30)
        for a, b in zip(plain(step).anchors.vectors, jittered(step).anchors.vectors, strict=True)
    ]
    assert np.mean(changed) == pytest.approx(0.7, abs=0.1)


def test_without_labels_positives_are_views_and_negatives_are_not_too_alike():
    config = tiny_config(augmented_share=1.0, views=2)
    examples = toy_examples(labelled=False, config=config)
    assert (examples.labels == UNLABELLED).all()
    maker = BatchMaker(examples, config)
    for step in range(10):
        triplets = maker.triplets(step)
        for anchor, positive, negative in triplets.pictures:
            assert anchor == positive != negative
            similarities = examples.neighbours.similarities[anchor]
            near = (similarities > 0) & ~examples.held_out[examples.neighbours.ids[anchor]]
            found = similarities[examples.neighbours.ids[anchor] == negative][0]
            ceiling = examples.view_similarity[anchor]
            if (similarities[near] < ceiling).any():
                assert found < ceiling
            else:
                assert found <= np.median(similarities[near])


def test_nothing_to_learn_from_is_said():
    lonely = toy_examples(objects=6, pictures=1, config=tiny_config(holdout=0.0))
    with pytest.raises(TrainingError, match="no picture has 1 others of its object and 1 of other objects among its"):
        BatchMaker(lonely, tiny_config(holdout=0.0))
