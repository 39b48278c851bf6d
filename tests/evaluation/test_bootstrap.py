"""The paired bootstrap: what it covers, and what it must not depend on."""

import numpy as np
import pytest
from scipy.stats import norm

from elvis.evaluation.bootstrap import paired_difference

nan = float("nan")


def test_a_constant_difference_is_certain():
    a = np.random.default_rng(0).random(50)
    found = paired_difference([(a, a + 0.25)])
    assert (found.value, found.low, found.high) == pytest.approx((0.25, 0.25, 0.25))
    assert found.certain


def test_the_interval_is_that_of_the_normal_approximation_for_many_queries():
    random = np.random.default_rng(1)
    a = random.random(4000)
    b = a + random.normal(0.01, 0.2, 4000)
    found = paired_difference([(a, b)], seed=3)
    half = norm.ppf(0.975) * (b - a).std() / np.sqrt(4000)
    assert found.value == pytest.approx((b - a).mean())
    assert found.high - found.value == pytest.approx(half, rel=0.05)
    assert found.value - found.low == pytest.approx(half, rel=0.05)


def test_pairing_takes_out_what_is_hard_for_both():
    random = np.random.default_rng(2)
    a = random.random(200)
    paired = paired_difference([(a, a + random.normal(0.02, 0.01, 200))])
    unpaired = paired_difference([(a, random.permutation(a) + 0.02)])
    assert paired.high - paired.low < 0.2 * (unpaired.high - unpaired.low)


def test_data_sets_weigh_the_same_however_large_they_are():
    found = paired_difference([(np.zeros(10), np.ones(10)), (np.zeros(1000), np.zeros(1000))])
    assert found.value == 0.5


def test_it_is_the_same_every_time_and_another_seed_is_close():
    random = np.random.default_rng(4)
    groups = [(random.random(30), random.random(30))]
    assert paired_difference(groups, seed=1) == paired_difference(groups, seed=1)
    assert paired_difference(groups, seed=1).low == pytest.approx(paired_difference(groups, seed=2).low, abs=0.02)


def test_queries_that_do_not_count_are_left_out():
    a, b = np.array([0.0, nan, 0.5]), np.array([0.5, nan, 1.0])
    assert paired_difference([(a, b)]).value == 0.5
    assert not paired_difference([(a, a)]).certain


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([], "at least one data set"),
        ([(np.array([nan]), np.array([nan]))], "at least one query"),
        ([(np.array([nan, 1.0]), np.array([1.0, nan]))], "same queries"),
        ([(np.array([1.0]), np.array([1.0, 2.0]))], "same queries"),
    ],
)
def test_wrong_arguments(groups, message):
    with pytest.raises(ValueError, match=message):
        paired_difference(groups)
