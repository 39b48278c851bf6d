"""Exact nearest neighbours against a plain sort, however the gallery is cut."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elvis.evaluation.first_stage import in_blocks, nearest


@given(st.integers(1, 9), st.integers(1, 40), st.integers(1, 50), st.integers(1, 45), st.integers(0, 99))
def test_any_blocks_give_the_stable_sort(queries, gallery, size, length, seed):
    random = np.random.default_rng(seed)
    # Small integers: many equal similarities, and exact sums in any order.
    q = random.integers(-1, 2, (queries, 3)).astype(np.float32)
    g = random.integers(-1, 2, (gallery, 3)).astype(np.float32)
    ids, cosines = nearest(q, in_blocks(g, size), length)
    expected = np.argsort(-(q @ g.T), axis=1, kind="stable")[:, :length]
    assert np.stack(ids).tolist() == expected.tolist()
    assert np.stack(cosines).tolist() == np.take_along_axis(q @ g.T, expected, 1).tolist()


def test_more_queries_than_are_done_at_once():
    q = np.random.default_rng(0).normal(size=(150, 8)).astype(np.float32)
    q /= np.linalg.norm(q, axis=1, keepdims=True)
    ids, _ = nearest(q, [q], 1)
    assert np.concatenate(ids).tolist() == list(range(150))


def test_ids_go_on_through_the_blocks():
    blocks = (
        np.full((1000, 1), -1.0, np.float32) if number != 7 else np.ones((1000, 1), np.float32) for number in range(9)
    )
    ids, _ = nearest(np.ones((1, 1), np.float32), blocks, 3)
    assert ids[0].tolist() == [7000, 7001, 7002]


def test_nan_and_wrong_lengths_are_refused():
    with pytest.raises(ValueError, match="finite"):
        nearest(np.ones((1, 1), np.float32), [np.full((2, 1), np.nan, np.float32)], 1)
    with pytest.raises(ValueError, match="length: expected at least 1"):
        nearest(np.ones((1, 1), np.float32), [], 0)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_gallery():
    queries = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)

    def peak(blocks):
        random = np.random.default_rng(1)
        tracemalloc.start()
        nearest(queries, (random.normal(size=(20_000, 4)).astype(np.float32) for _ in range(blocks)), 400)
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    assert peak(40) < 1.1 * peak(4)
