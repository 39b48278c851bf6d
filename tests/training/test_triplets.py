"""The miner, against its definition written out plainly."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elvis.training.triplets import UNLABELLED, AnchorStream, Neighbours, TripletMiner, nearest_neighbours


def brute_force(labels, ids, similarities, depth, min_positives, min_negatives):
    """The definition: {anchor: ({positive: weight}, {negative: weight})} of the valid anchors."""
    valid = {}
    for anchor, label in enumerate(labels):
        right, wrong = {}, {}
        for other, similarity in list(zip(ids[anchor], similarities[anchor], strict=True))[:depth]:
            if similarity > 0 and other >= 0:
                (right if labels[other] == label else wrong)[int(other)] = float(similarity) ** 3
        if label != UNLABELLED and len(right) >= min_positives and len(wrong) >= min_negatives:
            valid[anchor] = right, wrong
    return valid


def random_set(seed, pictures=40, objects=4, distractors=5):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, objects, pictures)
    labels[rng.permutation(pictures)[:distractors]] = UNLABELLED
    centres = rng.standard_normal((objects + 1, 3))
    vectors = centres[labels] + rng.standard_normal((pictures, 3))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return labels, vectors.astype(np.float32)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10_000), depth=st.integers(3, 45), least=st.integers(1, 6), most=st.integers(1, 6))
def test_valid_anchors_are_those_of_the_definition(seed, depth, least, most):
    labels, vectors = random_set(seed)
    near = nearest_neighbours(vectors, 39)
    expected = brute_force(labels, near.ids, near.similarities, depth, least, most)
    miner = TripletMiner(labels, near, depth=depth, min_positives=least, min_negatives=most)
    assert miner.anchors.tolist() == sorted(expected)
    rng = np.random.default_rng(seed)
    for anchor in miner.anchors[:5]:
        positive, negative = miner.draw(int(anchor), rng)
        assert positive in expected[anchor][0]
        assert negative in expected[anchor][1]


def test_draws_are_proportional_to_similarity_cubed():
    labels, vectors = random_set(3)
    near = nearest_neighbours(vectors, 39)
    expected = brute_force(labels, near.ids, near.similarities, 300, 5, 5)
    miner = TripletMiner(labels, near)
    anchor = int(miner.anchors[0])
    rng = np.random.default_rng(0)
    drawn = np.array([miner.draw(anchor, rng) for _ in range(4000)])
    for column, weights in enumerate(expected[anchor]):
        total = sum(weights.values())
        for picture, weight in weights.items():
            share = weight / total
            found = (drawn[:, column] == picture).mean()
            assert abs(found - share) < 5 * np.sqrt(share * (1 - share) / 4000) + 1e-9


def test_the_published_thresholds_are_the_defaults():
    labels = np.array([0] * 6 + [1] * 5)
    ids = np.array([[j for j in range(11) if j != i] for i in range(11)])
    similarities = np.full(ids.shape, 0.5, np.float32)
    # Pictures of object 0 have five others of it and five of object 1; those of object 1 only four others.
    assert TripletMiner(labels, Neighbours(ids, similarities)).anchors.tolist() == [0, 1, 2, 3, 4, 5]
    similarities[0, 0] = 0.0  # similarity 0 does not count
    assert TripletMiner(labels, Neighbours(ids, similarities)).anchors.tolist() == [1, 2, 3, 4, 5]
    relaxed = TripletMiner(labels, Neighbours(ids, similarities), min_positives=1, min_negatives=1)
    assert relaxed.anchors.tolist() == list(range(11))


def test_only_the_nearest_count():
    labels, vectors = random_set(1)
    near = nearest_neighbours(vectors, 39)
    with_all = TripletMiner(labels, near, depth=10)
    cut = Neighbours(near.ids[:, :10], near.similarities[:, :10])
    assert with_all.anchors.tolist() == TripletMiner(labels, cut).anchors.tolist()


def test_neighbours_are_exact_and_without_the_picture_itself():
    _, vectors = random_set(2)
    near = nearest_neighbours(vectors, 7)
    for picture in range(len(vectors)):
        similarity = vectors @ vectors[picture]
        similarity[picture] = -np.inf
        assert near.ids[picture].tolist() == np.argsort(-similarity, kind="stable")[:7].tolist()
    assert nearest_neighbours(vectors[:1], 5).ids.shape == (1, 0)
    assert nearest_neighbours(vectors[:3], 5).ids.shape == (3, 2)


def test_what_is_not_allowed_is_never_drawn():
    labels, vectors = random_set(4)
    allowed = np.arange(len(labels)) % 2 == 0
    near = nearest_neighbours(vectors, 39).among(allowed)
    miner = TripletMiner(labels, near, min_positives=1, min_negatives=1)
    rng = np.random.default_rng(0)
    for anchor in miner.anchors:
        assert all(allowed[picture] for picture in miner.draw(int(anchor), rng))


def test_a_wrong_picture_without_labels_stays_below_the_ceiling():
    _, vectors = random_set(5)
    near = nearest_neighbours(vectors, 39)
    miner = TripletMiner(np.full(40, UNLABELLED), near)
    assert len(miner.anchors) == 0
    rng = np.random.default_rng(0)
    ceiling = float(np.median(near.similarities[0][near.similarities[0] > 0]))
    for _ in range(50):
        wrong = miner.draw_wrong(0, rng, ceiling)
        assert 0 < vectors[0] @ vectors[wrong] < ceiling
    # Where all are as alike, the less similar half is left.
    every = [miner.draw_wrong(0, rng, 0.0) for _ in range(50)]
    assert all(0 < vectors[0] @ vectors[wrong] <= ceiling for wrong in every)
    far = Neighbours(near.ids, np.zeros_like(near.similarities))
    assert TripletMiner(np.full(40, UNLABELLED), far).draw_wrong(0, rng) is None


def test_every_anchor_comes_once_an_epoch_in_an_order_of_its_own():
    stream = AnchorStream(np.arange(10, 17), (5, 0))
    epochs = [stream.take(7 * epoch, 7).tolist() for epoch in range(3)]
    assert all(sorted(epoch) == list(range(10, 17)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert stream.take(5, 4).tolist() == epochs[0][5:] + epochs[1][:2]
    assert AnchorStream(np.arange(10, 17), (5, 0)).take(7, 7).tolist() == epochs[1]
    with pytest.raises(ValueError, match="anchors: expected at least one"):
        AnchorStream(np.empty(0, np.int64), (0,))
