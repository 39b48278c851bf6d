"""Metrics against hand-computed values, scikit-learn, and brute force written another way."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from elvis.evaluation.metrics import (
    ilias_ap,
    mean_over_queries,
    move_junk_last,
    places,
    recall_at,
    rectangular_ap,
    rerank,
    revisited_sets,
    share_found,
    trapezoidal_ap,
)

nan = float("nan")


@st.composite
def judged_rankings(draw, *, complete=True):
    """A permutation of some pictures, the positives and the junk among them."""
    count = draw(st.integers(1, 30))
    ranked = draw(st.permutations(range(count)))
    role = draw(st.lists(st.sampled_from("+-j"), min_size=count, max_size=count))
    length = count if complete else draw(st.integers(0, count))
    return (
        list(ranked)[:length],
        [i for i in range(count) if role[i] == "+"],
        [i for i in range(count) if role[i] == "j"],
    )


def exact_rectangular(ranked, positives, junk, cutoff):
    """By the definition, in exact fractions, walking down the list."""
    seen = hits = 0
    total = Fraction(0)
    for each in ranked:
        if each in junk:
            continue
        seen += 1
        if seen > cutoff:
            break
        if each in positives:
            hits += 1
            total += Fraction(hits, seen)
    return float(total / min(len(positives), cutoff))


def exact_trapezoidal(ranked, positives, junk):
    """Area under the (recall, precision) points, one after every picture, joined by straight lines."""
    seen = hits = 0
    area, before = Fraction(0), Fraction(1)
    for each in ranked:
        if each in junk:
            continue
        seen += 1
        hits += each in positives
        precision = Fraction(hits, seen)
        if each in positives:
            area += Fraction(1, len(positives)) * (before + precision) / 2
        before = precision
    return float(area)


@given(judged_rankings(complete=False), st.integers(1, 35))
def test_rectangular_ap_is_the_definition(judged, cutoff):
    ranked, positives, junk = judged
    if positives:
        found = places(ranked, positives, junk)
        expected = exact_rectangular(ranked, positives, junk, cutoff)
        assert rectangular_ap(found, len(positives), cutoff) == pytest.approx(expected, abs=1e-12)


@given(judged_rankings(complete=False))
def test_trapezoidal_ap_is_the_area_under_the_curve(judged):
    ranked, positives, junk = judged
    if positives:
        found = places(ranked, positives, junk)
        expected = exact_trapezoidal(ranked, positives, junk)
        assert trapezoidal_ap(found, len(positives)) == pytest.approx(expected, abs=1e-12)


@given(judged_rankings())
def test_whole_rankings_agree_with_scikit_learn(judged):
    ranked, positives, junk = judged
    if positives:
        kept = [each for each in ranked if each not in junk]
        relevant = np.isin(kept, positives)
        scores = -np.arange(len(kept), dtype=float)
        expected = average_precision_score(relevant, scores)
        found = places(ranked, positives, junk)
        assert rectangular_ap(found, len(positives), None) == pytest.approx(expected, abs=1e-12)
        assert ilias_ap(relevant, scores, len(positives)) == pytest.approx(expected, abs=1e-12)


@given(judged_rankings(complete=False), st.integers(1, 35), st.data())
def test_ilias_ap_is_what_its_evaluator_computes(judged, cutoff, data):
    """scikit-learn over the top k, times the share of the possible hits; ties included."""
    ranked, positives, _ = judged
    steps = data.draw(st.lists(st.integers(0, 1), min_size=len(ranked), max_size=len(ranked)))
    scores = -np.cumsum(steps).astype(float)
    relevant = np.isin(ranked, positives)
    top, top_scores = relevant[:cutoff], scores[:cutoff]
    expected = 0.0
    if top.any():
        expected = average_precision_score(top, top_scores) * top.sum() / min(cutoff, len(positives))
    assert ilias_ap(relevant, scores, len(positives), cutoff) == pytest.approx(expected, abs=1e-12)


@given(judged_rankings(), st.integers(1, 35))
def test_every_measure_lies_between_0_and_1_and_a_perfect_ranking_has_1(judged, cutoff):
    ranked, positives, junk = judged
    if not positives:
        return
    count = len(positives)
    found = places(ranked, positives, junk)
    best = np.arange(count)
    for measure in (lambda f: rectangular_ap(f, count, cutoff), lambda f: trapezoidal_ap(f, count)):
        assert 0 <= measure(found) <= 1
        assert measure(best) == pytest.approx(1)
    assert recall_at(best, count, cutoff) == 1
    assert share_found(best, count, cutoff) == pytest.approx(min(1, cutoff / count))


@given(judged_rankings(), st.integers(1, 35), st.data())
def test_junk_anywhere_changes_nothing(judged, cutoff, data):
    ranked, positives, junk = judged
    if not positives:
        return
    elsewhere = [each for each in ranked if each not in junk]
    for each in junk:
        elsewhere.insert(data.draw(st.integers(0, len(elsewhere))), each)
    assert places(ranked, positives, junk).tolist() == places(elsewhere, positives, junk).tolist()
    assert places(ranked, positives, junk).tolist() == places(move_junk_last(ranked, junk), positives).tolist()


@given(judged_rankings(), st.data())
def test_a_positive_that_climbs_never_lowers_ap(judged, data):
    ranked, positives, _ = judged
    if not positives or len(ranked) < 2:
        return
    at = data.draw(st.integers(1, len(ranked) - 1))
    if ranked[at] not in positives or ranked[at - 1] in positives:
        return
    better = ranked.copy()
    better[at - 1 : at + 1] = ranked[at], ranked[at - 1]
    before, after = places(ranked, positives), places(better, positives)
    assert rectangular_ap(after, len(positives)) > rectangular_ap(before, len(positives))
    assert trapezoidal_ap(after, len(positives)) > trapezoidal_ap(before, len(positives))


# Edge cases of the data sets, by name.


def test_revisited_empty_easy():
    positives, junk = revisited_sets("medium", easy=[], hard=[2], junk=[5])
    assert (positives.tolist(), junk.tolist()) == ([2], [5])
    positives, junk = revisited_sets("easy", easy=[], hard=[2], junk=[5])
    assert (positives.tolist(), junk.tolist()) == ([], [5, 2])
    assert math.isnan(trapezoidal_ap(places([2, 5, 1], positives, junk), 0))


def test_revisited_empty_junk():
    positives, junk = revisited_sets("medium", easy=[1], hard=[2], junk=[])
    assert junk.tolist() == []
    assert trapezoidal_ap(places([1, 2, 0], positives, junk), 2) == 1.0


def test_revisited_positives_ranked_below_junk():
    # Hard: the easy picture 1 and the junk 3 leave the list before the hard ones take their places.
    positives, junk = revisited_sets("hard", easy=[1], hard=[2, 4], junk=[3])
    found = places([3, 1, 2, 0, 4], positives, junk)
    assert found.tolist() == [0, 2]
    assert trapezoidal_ap(found, 2) == pytest.approx((1 + (1 / 2 + 2 / 3) / 2) / 2)


def test_revisited_full_against_truncated_ranking():
    full = places([8, 1, 9, 2, 3], [1, 2, 3])
    cut = places([8, 1], [1, 2, 3])
    assert trapezoidal_ap(full, 3) == pytest.approx(((0 + 1 / 2) + (1 / 3 + 2 / 4) + (2 / 4 + 3 / 5)) / 6)
    assert trapezoidal_ap(cut, 3) == pytest.approx((0 + 1 / 2) / 2 / 3)
    assert trapezoidal_ap(cut, 3, ranking_length=2) == pytest.approx((0 + 1 / 2) / 2 / 2)
    assert trapezoidal_ap(full, 3, ranking_length=5) == trapezoidal_ap(full, 3)
    assert trapezoidal_ap(places([], [1]), 1, ranking_length=0) == 0.0


def test_gldv2_query_with_more_positives_than_k():
    # Five positives, k = 3: two of the three places are hits.
    assert rectangular_ap(np.array([0, 2, 7]), positives=5, cutoff=3) == pytest.approx((1 + 2 / 3) / 3)


def test_gldv2_query_without_positives_is_left_out_of_the_mean():
    values = [rectangular_ap(np.array([0]), 1), rectangular_ap(places([4, 5], []), 0), 0.0]
    assert mean_over_queries(values) == 0.5


def test_sop_query_inside_the_database_behind_a_duplicate_of_it():
    # The query is picture 6; its duplicate 2 leads. It goes by identity, not by place.
    found = places([2, 6, 9, 4], positives=[2, 4], junk=[6])
    assert found.tolist() == [0, 2]


def test_sop_singleton_class_is_left_out():
    assert math.isnan(rectangular_ap(places([6, 2, 9], positives=[], junk=[6]), 0))
    with pytest.raises(ValueError, match="at least one query with a positive"):
        mean_over_queries([nan, nan])


def test_ilias_two_queries_of_one_instance_share_positives():
    positives = [10, 11]
    first = ilias_ap(np.isin([10, 3, 11], positives), [3.0, 2.0, 1.0], 2)
    second = ilias_ap(np.isin([3, 4, 10], positives), [3.0, 2.0, 1.0], 2)
    assert first == pytest.approx((1 + 2 / 3) / 2)
    assert second == pytest.approx(1 / 3 / 2)


def test_ilias_ids_above_float32():
    big = 2**24 + 1
    found = places(np.array([2**24, big], np.int64), [big])
    assert found.tolist() == [1]
    with pytest.raises(ValueError, match="list of integers"):
        places(np.array([2**24, big], np.float32), [big])


def test_ilias_tied_scores_are_one_step():
    relevant = [True, False, False, True]
    strictly = ilias_ap(relevant, [4.0, 3.0, 2.0, 1.0], 2)
    tied = ilias_ap(relevant, [4.0, 4.0, 1.0, 1.0], 2)
    assert strictly == rectangular_ap(np.array([0, 3]), 2, 1000) == pytest.approx((1 + 2 / 4) / 2)
    assert tied == pytest.approx((1 / 2 + 2 / 4) / 2)


def test_ilias_nothing_hit_is_zero():
    assert ilias_ap([False, False], [2.0, 1.0], 3) == 0.0
    assert ilias_ap([], [], 3) == 0.0
    assert ilias_ap([False, True], [2.0, 1.0], 3, cutoff=1) == 0.0


def test_apl_recall_wants_one_positive_only():
    assert recall_at(np.array([9]), positives=40, cutoff=10) == 1.0
    assert recall_at(np.array([9]), positives=40, cutoff=9) == 0.0
    assert recall_at(np.array([], int), positives=40, cutoff=100) == 0.0


def test_apl_empty_positives_are_left_out():
    assert math.isnan(recall_at(np.array([], int), positives=0, cutoff=10))


def test_shortlist_shorter_than_the_depth():
    # Official nn files may hold fewer candidates than the depth: all of them are scored, none invented.
    assert rerank([5, 6, 7], [0.0, 2.0, 1.0]).tolist() == [6, 7, 5]


def test_rerank_leaves_the_tail_and_keeps_ties():
    assert rerank([5, 6, 7, 8, 9], [1.0, 2.0, 2.0]).tolist() == [6, 7, 5, 8, 9]


def test_junk_leaves_before_the_shortlist_is_taken():
    order = move_junk_last([1, 2, 3, 4], junk=[1, 3])
    assert order[:2].tolist() == [2, 4]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: places([1, 1], [1]), "at most once"),
        (lambda: places([1, 2], [1], [1]), "no picture in both"),
        (lambda: rectangular_ap(np.array([0, 1]), 1), "at least the 2 that were found"),
        (lambda: rectangular_ap(np.array([0, 0]), 3), "different places"),
        (lambda: rectangular_ap(np.array([0]), 1, 0), "cutoff: expected at least 1, got 0"),
        (lambda: ilias_ap([True], [nan], 1), "finite"),
        (lambda: ilias_ap([True, True], [1.0, 2.0], 2), "never rise"),
        (lambda: ilias_ap([True, True], [1.0], 2), "equal lengths"),
        (lambda: ilias_ap([True, True], [2.0, 1.0], 1), "at least the 2"),
        (lambda: rerank([1], [1.0, 2.0]), "at most 1 numbers"),
        (lambda: rerank([1], [nan]), "finite"),
        (lambda: revisited_sets("middle", [], [], []), "easy, medium or hard"),
    ],
)
def test_wrong_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
