"""What a ranking is worth: average precision in its three published forms, and recall.

Pure numpy, no I/O. A ranking is an array of picture ids, best first; a *place* is a zero-based position in a
ranking from which the junk was taken out, as `places` gives it. Values are fractions in [0, 1]; the harness
prints percent.

| form | used by | what it is |
| --- | --- | --- |
| `trapezoidal_ap` | ROxford, RParis | area under the precision-recall curve by trapezoids, whole ranking |
| `rectangular_ap` | GLDv2, INSTRE, MET, Product1M, SOP, RP2K, folders | precision at each hit, cut at k |
| `ilias_ap` | ILIAS | the same with tied scores taken as one step, as its evaluator does |
| `recall_at` | APL | whether any positive stands among the first k |

A query without positives has no AP: these functions answer NaN, and `mean_over_queries` leaves it out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]


def _ids(name: str, values: ArrayLike) -> Ids:
    array = np.asarray(values)
    if array.size == 0:
        return np.empty(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        # Float ids are refused: float32 counts exactly only up to 2**24.
        raise ValueError(f"{name}: expected a list of integers, got shape {array.shape} of {array.dtype}")
    return array.astype(np.int64)


def places(ranked: ArrayLike, positives: ArrayLike, junk: ArrayLike = ()) -> Ids:
    """Zero-based places of the positives, ascending, after the junk was dropped from the ranking.

    Positives that the ranking does not hold have no place.

    Example:
        >>> places([7, 3, 9, 4], positives=[9, 4, 1], junk=[3]).tolist()
        [1, 2]
    """
    ranked, positives, junk = _ids("ranked", ranked), _ids("positives", positives), _ids("junk", junk)
    if len(np.unique(ranked)) != len(ranked):
        raise ValueError("ranked: expected every picture at most once, got one twice")
    if np.intersect1d(positives, junk).size:
        raise ValueError("positives and junk: expected no picture in both")
    kept = ranked[~np.isin(ranked, junk)]
    return np.flatnonzero(np.isin(kept, positives)).astype(np.int64)


def _check_places(found: Ids, positives: int) -> Ids:
    found = np.sort(_ids("found", found))
    if positives < len(found):
        raise ValueError(f"positives: expected at least the {len(found)} that were found, got {positives}")
    if len(found) and (found[0] < 0 or len(np.unique(found)) != len(found)):
        raise ValueError("found: expected different places of at least 0")
    return found


def _check_cutoff(cutoff: int | None) -> None:
    if cutoff is not None and cutoff < 1:
        raise ValueError(f"cutoff: expected at least 1, got {cutoff}")


def trapezoidal_ap(found: Ids, positives: int, *, ranking_length: int | None = None) -> float:
    """Average precision of ROxford and RParis: the mean of the precision before and at each hit.

    Args:
        found: places of the positives that the ranking holds.
        positives: how many there are in all.
        ranking_length: length of a truncated ranking; the published code divides by no more than that.
            Left out: the ranking is whole.

    Example:
        >>> trapezoidal_ap(np.array([0, 2]), positives=2)  # ((1 + 1) / 2 + (1/2 + 2/3) / 2) / 2
        0.7916666666666666
    """
    found = _check_places(found, positives)
    if positives == 0:
        return float("nan")
    hits = np.arange(len(found))
    before = np.where(found == 0, 1.0, hits / np.maximum(found, 1))
    at = (hits + 1) / (found + 1)
    most = positives if ranking_length is None else min(positives, ranking_length)
    return float(((before + at) / 2).sum() / most) if most else 0.0


def rectangular_ap(found: Ids, positives: int, cutoff: int | None = 100) -> float:
    """AP@k: precision at each hit among the first k, over the number of hits there could be.

    Args:
        found: places of the positives that the ranking holds.
        positives: how many there are in all.
        cutoff: k; None looks at the whole ranking.

    Example:
        >>> rectangular_ap(np.array([0, 2, 150]), positives=3)  # (1/1 + 2/3) / 3
        0.5555555555555555
        >>> rectangular_ap(np.array([0, 1, 2]), positives=3, cutoff=2)  # both places are hits
        1.0
    """
    found = _check_places(found, positives)
    _check_cutoff(cutoff)
    if positives == 0:
        return float("nan")
    most = positives if cutoff is None else min(positives, cutoff)
    kept = found if cutoff is None else found[found < cutoff]
    return float((np.arange(1, len(kept) + 1) / (kept + 1)).sum() / most)


def ilias_ap(relevant: ArrayLike, scores: ArrayLike, positives: int, cutoff: int = 1000) -> float:
    """AP@1000 as ILIAS's evaluator computes it: tied scores are one step of the curve.

    With strictly ordered scores this is `rectangular_ap`; with ties it is not, so rankings should be written
    with strictly ordered scores. Zero when nothing was hit.

    Args:
        relevant: (L,) bool, best first.
        scores: (L,) of the same pictures, never rising.
        positives: how many there are in all.
        cutoff: only so many are looked at.

    Example:
        >>> ilias_ap([True, False, True], [0.9, 0.8, 0.7], positives=2)
        0.8333333333333333
        >>> ilias_ap([True, False], [0.9, 0.9], positives=1)  # tied: 1 hit in 2, whichever stands first
        0.5
    """
    hit = np.asarray(relevant, dtype=bool)
    score = np.asarray(scores, dtype=np.float64)
    if hit.ndim != 1 or hit.shape != score.shape:
        raise ValueError(f"relevant and scores: expected equal lengths, got {hit.shape} and {score.shape}")
    if not np.isfinite(score).all() or (np.diff(score) > 0).any():
        raise ValueError("scores: expected finite numbers that never rise")
    if positives < int(hit.sum()):
        raise ValueError(f"positives: expected at least the {int(hit.sum())} that were found, got {positives}")
    _check_cutoff(cutoff)
    hit, score = hit[:cutoff], score[:cutoff]
    if not hit.any():
        return 0.0
    group_ends = np.flatnonzero(np.append(np.diff(score) != 0, True))
    hits = np.cumsum(hit)[group_ends]
    precision = hits / (group_ends + 1)
    return float((np.diff(hits, prepend=0) * precision).sum() / min(cutoff, positives))


def recall_at(found: Ids, positives: int, cutoff: int) -> float:
    """Recall@k of place recognition: 1 if any positive stands among the first k, else 0.

    Example:
        >>> recall_at(np.array([4, 9]), positives=3, cutoff=5)
        1.0
    """
    found = _check_places(found, positives)
    _check_cutoff(cutoff)
    return float("nan") if positives == 0 else float((found < cutoff).any())


def share_found(found: Ids, positives: int, cutoff: int) -> float:
    """Share of all positives among the first k: no re-ranking of k pictures can find more.

    Example:
        >>> share_found(np.array([4, 9]), positives=4, cutoff=5)
        0.25
    """
    found = _check_places(found, positives)
    _check_cutoff(cutoff)
    return float("nan") if positives == 0 else float((found < cutoff).sum() / positives)


def mean_over_queries(values: Sequence[float] | Floats) -> float:
    """Mean over the queries that have a value; those without positives (NaN) are left out.

    Example:
        >>> mean_over_queries([1.0, float("nan"), 0.5])
        0.75
    """
    array = np.asarray(values, dtype=np.float64)
    known = array[~np.isnan(array)]
    if not known.size:
        raise ValueError("values: expected at least one query with a positive, got none")
    return float(known.mean())


def move_junk_last(ranked: ArrayLike, junk: ArrayLike) -> Ids:
    """The ranking with its junk at the end, order otherwise kept: what is done before taking a shortlist.

    Example:
        >>> move_junk_last([7, 3, 9, 4], junk=[3, 7]).tolist()
        [9, 4, 7, 3]
    """
    ranked = _ids("ranked", ranked)
    is_junk = np.isin(ranked, _ids("junk", junk))
    return np.concatenate([ranked[~is_junk], ranked[is_junk]])


def rerank(ranked: ArrayLike, scores: ArrayLike) -> Ids:
    """The first len(scores) pictures put in the order of their new scores, the tail left as it was.

    Pictures with equal scores keep their order.

    Example:
        >>> rerank([7, 3, 9, 4], scores=[0.1, 0.5, 0.5]).tolist()
        [3, 9, 7, 4]
    """
    ranked = _ids("ranked", ranked)
    score = np.asarray(scores, dtype=np.float64)
    if score.ndim != 1 or len(score) > len(ranked):
        raise ValueError(f"scores: expected at most {len(ranked)} numbers, got shape {score.shape}")
    if not np.isfinite(score).all():
        raise ValueError("scores: expected finite numbers, got NaN or infinity")
    return np.concatenate([ranked[: len(score)][np.argsort(-score, kind="stable")], ranked[len(score) :]])


def revisited_sets(protocol: str, easy: ArrayLike, hard: ArrayLike, junk: ArrayLike) -> tuple[Ids, Ids]:
    """Positives and junk of a ROxford or RParis query under "easy", "medium" or "hard".

    Example:
        >>> [ids.tolist() for ids in revisited_sets("hard", easy=[1], hard=[2], junk=[3])]
        [[2], [3, 1]]
    """
    easy, hard, junk = _ids("easy", easy), _ids("hard", hard), _ids("junk", junk)
    match protocol:
        case "easy":
            return easy, np.concatenate([junk, hard])
        case "medium":
            return np.concatenate([easy, hard]), junk
        case "hard":
            return hard, np.concatenate([junk, easy])
        case _:
            raise ValueError(f"protocol: expected easy, medium or hard, got {protocol!r}")
