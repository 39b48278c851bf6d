"""Where the match lies: a box in both pictures, from the positions of the matches that agree with each other.

A few matches always go astray, so a match counts only where many others say the same: that one picture is
the other one moved, turned and scaled. How many is enough is decided by how often chance would bring that
many together (a-contrario reasoning: Moisan and Stival, 2004), so no threshold depends on the method or on the
number of descriptors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from elvis.values import Descriptors, Explanation

Box = tuple[float, float, float, float]
"""x, y, width, height as fractions of the upright picture."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

STRONGEST = 56
"""Every two of this many strongest matches propose a transform."""
MATCHES = 400
"""At most this many matches vote on a transform."""
TOLERANCE = 1.4
"""How far a match may lie off, in patches of the coarser side."""
AT_ONCE = 256
"""Transforms that are tried together."""
LARGEST_SCALE = 8.0
EVIDENCE = 15.0
"""Natural logarithm of how much rarer than once by chance an agreement has to be."""
FEWEST = 6
"""Fewer matches than this never make a box."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """The matches of a pair of pictures that one transform explains, strongest first.

    Attributes:
        query_index: (K,) place of the descriptor in the query.
        gallery_index: (K,) place of its partner in the gallery picture.
        evidence: natural logarithm of how much rarer than once by chance such an agreement is.
    """

    query_index: Ints
    gallery_index: Ints
    evidence: float


def match_boxes(explanation: Explanation, pair: int = 0) -> tuple[Box | None, Box | None]:
    """The box of the match in the found picture and in the query: x, y, width, height in [0, 1].

    Half a patch is added around the patch centres, and boxes end at the picture's border. Both are None where
    too few matches agree on one place. Works on what any method explains; the descriptors need `xy`, and
    `size` where the pictures are not square.

    Args:
        explanation: of one or more pairs of pictures.
        pair: which of them.

    Example:
        >>> import torch
        >>> from elvis import Descriptors
        >>> centres = torch.cartesian_prod(torch.arange(8), torch.arange(8))[None, :, [1, 0]] / 8 + 1 / 16
        >>> side = Descriptors(torch.ones(1, 64, 2), xy=centres)
        >>> ones, same = torch.ones(1, 64), torch.eye(64)[None]
        >>> match_boxes(Explanation(same, same, ones, ones, side, side, torch.tensor([128.0])))
        ((0.0, 0.0, 1.0, 1.0), (0.0, 0.0, 1.0, 1.0))
    """
    agreement = agreeing_matches(explanation, pair)
    if agreement is None:
        return None, None
    found = _box_around(explanation.gallery, pair, agreement.gallery_index)
    return found, _box_around(explanation.query, pair, agreement.query_index)


def agreeing_matches(explanation: Explanation, pair: int = 0) -> Agreement | None:
    """The matches that agree with each other on where the same thing lies; None where too few do.

    Args:
        explanation: of one or more pairs of pictures.
        pair: which of them.

    Example:
        >>> import torch
        >>> from elvis import Descriptors
        >>> side, one = Descriptors(torch.ones(1, 1, 2), xy=torch.full((1, 1, 2), 0.5)), torch.ones(1, 1)
        >>> agreeing_matches(Explanation(one[None], one[None], one, one, side, side, torch.ones(1))) is None
        True
    """
    if not 0 <= pair < len(explanation.gallery):
        raise ValueError(f"pair: expected one of {len(explanation.gallery)} pairs, got {pair}")
    query = _Side.of("query", explanation.query, pair)
    gallery = _Side.of("gallery", explanation.gallery, pair)
    rows, columns, weights = _matches(explanation, pair, query.real, gallery.real)
    if len(rows) < FEWEST:
        return None
    places, targets = query.points[rows], gallery.points[columns]
    counted = np.where(_hub_rank(rows) + _hub_rank(columns) < 3, weights, 0)
    best = _best_transform(places, targets, counted, query, gallery)
    if best is None or best[1] < EVIDENCE:
        return None
    transform, evidence = best
    inside = _refined(transform, places, targets, weights, query, gallery)
    inside = _grown(inside, places, targets, weights, query, gallery)
    inside &= ~_sparse(inside, targets, gallery.patch) & ~_sparse(inside, places, query.patch)
    if np.count_nonzero(inside) < FEWEST:
        return None
    order = np.flatnonzero(inside)
    order = order[np.argsort(-weights[order], kind="stable")]
    return Agreement(query.real[rows[order]], gallery.real[columns[order]], evidence)


@dataclass(frozen=True, slots=True)
class _Side:
    """One picture of a pair; points in units of its longer side, so that turning it keeps its shape."""

    real: Ints  # places of the real descriptors
    points: Floats
    area: float
    patch: float

    @staticmethod
    def of(name: str, descriptors: Descriptors, pair: int) -> _Side:
        # One query meets every gallery picture: it is stored once.
        pair = pair if len(descriptors) > 1 else 0
        if descriptors.xy is None:
            raise ValueError(f"{name}: expected descriptors with xy (patch centres), got none")
        real = np.flatnonzero(descriptors.mask[pair].cpu().numpy())
        extent = _extent(descriptors, pair)
        xy = descriptors.xy[pair].detach().double().cpu().numpy()[real]
        step = patch_step(xy) * extent
        return _Side(real, xy * extent, float(extent[0] * extent[1]), float(step.mean()))


def _extent(descriptors: Descriptors, pair: int) -> Floats:
    if descriptors.size is None:
        return np.ones(2)
    size = descriptors.size[pair].double().cpu().numpy()
    return size / size.max()


def patch_step(xy: Floats) -> Floats:
    """(2,) width and height of a patch as fractions of the picture, read off the grid the centres lie on."""
    # Centres kept in half precision waver by 5e-4; a grid is never finer than 300 patches a side.
    noise = 1 / 300
    smallest = 0.25 / np.sqrt(len(xy))  # for centres on no grid, where the gaps mean nothing
    steps: list[float] = []
    for axis in range(2):
        gaps = np.diff(np.sort(xy[:, axis]))
        gaps = gaps[gaps > noise]
        steps.append(max(smallest, float(np.quantile(gaps, 0.1))) if len(gaps) else 1.0)
    return np.minimum(steps, 1.0)


def _matches(explanation: Explanation, pair: int, query_real: Ints, gallery_real: Ints) -> tuple[Ints, Ints, Floats]:
    """Rows, columns and weights in (0, 1] of the strongest matches; found from both sides weighs double."""
    refined = explanation.refined[pair].detach().cpu()
    if refined.shape != (len(query_real), len(gallery_real)):
        refined = refined[torch.from_numpy(query_real)][:, torch.from_numpy(gallery_real)]
    best_in_row, best_in_column = (refined.argmax(dim).numpy() for dim in (1, 0))
    query_votes = explanation.query_votes[pair].detach().double().cpu().numpy()[query_real]
    gallery_votes = explanation.gallery_votes[pair].detach().double().cpu().numpy()[gallery_real]
    rows = np.concatenate([np.arange(len(query_real)), best_in_column])
    columns = np.concatenate([best_in_row, np.arange(len(gallery_real))])
    key, where = np.unique(rows * len(gallery_real) + columns, return_inverse=True)
    weights = np.bincount(where, np.concatenate([query_votes, gallery_votes]), len(key)).clip(min=0)
    order = np.argsort(-weights, kind="stable")[:MATCHES]
    order = order[weights[order] > 1e-3 * weights.max(initial=0)]
    # Votes of some methods span three decades: the root keeps a few strong ones from outvoting all others.
    weights = np.sqrt(weights[order] / weights.max(initial=1e-30))
    return key[order] // len(gallery_real), key[order] % len(gallery_real), weights


def _hub_rank(index: Ints) -> Ints:
    """How many stronger matches end at the same descriptor: a crowd at one place proves no transform."""
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    rank = np.empty_like(index)
    rank[order] = np.arange(len(index)) - np.searchsorted(ordered, ordered)
    return rank


def _best_transform(
    places: Floats, targets: Floats, weights: Floats, query: _Side, gallery: _Side
) -> tuple[Floats, float] | None:
    """The similarity transform (2, 3) from query to gallery that chance explains worst, and its evidence."""
    first, second = _proposals(places)
    # As complex numbers a similarity transform is z → a·z + b, and two matches give both.
    z, w = places @ [1, 1j], targets @ [1, 1j]
    from_query, in_gallery = z[first] - z[second], w[first] - w[second]
    # Two neighbouring patches say nothing about angle and scale: a base line of two patches at the least.
    useful = (np.abs(from_query) > 1.9 * query.patch) & (np.abs(in_gallery) > 1.9 * gallery.patch)
    first, from_query, in_gallery = first[useful], from_query[useful], in_gallery[useful]
    turn = in_gallery / from_query
    scale = np.abs(turn)
    usual = (scale < LARGEST_SCALE) & (scale > 1 / LARGEST_SCALE)
    first, turn, scale = first[usual], turn[usual], scale[usual]
    if not len(first):
        return None
    shift = w[first] - turn * z[first]
    reach = _reach(scale, query, gallery)
    agreeing = _agreeing(turn, shift, reach, places, targets, weights)
    evidence = _evidence(agreeing, float(weights.sum()), reach, gallery.area, len(first))
    best = int(evidence.argmax())
    a, b = turn[best], shift[best]
    return np.array([[a.real, -a.imag, b.real], [a.imag, a.real, b.imag]]), float(evidence[best])


def _agreeing(
    turn: NDArray[np.complex128],
    shift: NDArray[np.complex128],
    reach: Floats,
    places: Floats,
    targets: Floats,
    weights: Floats,
) -> Floats:
    """Summed weights of the matches that each transform z → turn·z + shift brings within reach of their targets."""
    # Matrix products in single precision, far finer than a patch; a few transforms at a time stay in the cache.
    points = np.column_stack([places, np.ones(len(places))]).T.astype(np.float32)
    x, y = targets.T.astype(np.float32)
    to_x = np.column_stack([turn.real, -turn.imag, shift.real]).astype(np.float32)
    to_y = np.column_stack([turn.imag, turn.real, shift.imag]).astype(np.float32)
    limit, weight = (reach**2).astype(np.float32)[:, None], weights.astype(np.float32)
    agreeing = np.empty(len(turn))
    for start in range(0, len(turn), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        off, across = to_x[part] @ points, to_y[part] @ points
        off -= x
        across -= y
        off *= off
        across *= across
        off += across
        agreeing[part] = (off <= limit[part]).astype(np.float32) @ weight
    return agreeing


def _distances(points: Floats, others: Floats) -> Floats:
    """(P, K) distances of every two points."""
    across, down = (np.subtract.outer(points[:, axis], others[:, axis]) for axis in range(2))
    return np.sqrt(across * across + down * down)


def _nearest(away: Floats, ranks: range) -> Ints:
    """(P, R) places of the nearest by rank in each row of (P, K) distances; equal ones in the order of their places."""
    # One whole number each for distance and place: a partial sort of those is several times faster than a stable one.
    bits = max(1, int(away.shape[1] - 1).bit_length())
    keys = (np.rint(away * 2.0**30).astype(np.int64) << bits) | np.arange(away.shape[1])
    wanted = [rank for rank in ranks if rank < away.shape[1]]
    if not wanted:  # fewer matches than the first rank
        return np.empty((len(away), 0), np.int64)
    return np.partition(keys, wanted, axis=1)[:, wanted] & ((1 << bits) - 1)


def _proposals(places: Floats) -> tuple[Ints, Ints]:
    """Pairs of matches to try: all of the strongest, and every match with a few of its neighbours."""
    first, second = np.triu_indices(min(STRONGEST, len(places)), 1)
    away = _distances(places, places)
    # The very next neighbours are too close for an angle; those a few patches on are still the same thing.
    neighbours = _nearest(away, range(12, 60, 12))
    start = np.repeat(np.arange(len(places)), neighbours.shape[1])
    return np.concatenate([first, start]), np.concatenate([second, neighbours.ravel()])


def _reach(scale: Floats, query: _Side, gallery: _Side) -> Floats:
    """How far off a match may be in the gallery: the coarser of the two patches decides."""
    return TOLERANCE * np.maximum(gallery.patch, scale * query.patch)


def _scale_and_reach(linear: Floats, query: _Side, gallery: _Side) -> tuple[float, float]:
    scale = np.sqrt(np.abs(np.linalg.det(linear)))
    return float(scale), float(_reach(np.asarray(scale), query, gallery))


def _evidence(agreeing: Floats, total: float, reach: Floats, area: float, tried: int) -> Floats:
    """−ln of an upper bound (Chernoff) on how often chance brings so many together in `tried` attempts."""
    chance = np.clip(np.pi * reach**2 / area, 1e-6, 0.999)
    share = np.clip((agreeing - 2) / max(total - 2, 1e-9), 1e-9, 1 - 1e-9)  # two of them made the transform
    divergence = share * np.log(share / chance) + (1 - share) * np.log((1 - share) / (1 - chance))
    return np.where(share > chance, total * divergence, 0) - np.log(tried)


def _refined(
    transform: Floats, places: Floats, targets: Floats, weights: Floats, query: _Side, gallery: _Side
) -> Bools:
    """Matches that agree once the transform may also shear, as a change of viewpoint makes it."""
    homogeneous = np.column_stack([places, np.ones(len(places))])
    inside = np.zeros(len(places), dtype=np.bool_)
    for _ in range(4):
        _, reach = _scale_and_reach(transform[:, :2], query, gallery)
        off = np.linalg.norm(homogeneous @ transform.T - targets, axis=1)
        now = off <= 1.3 * reach
        if np.array_equal(now, inside):
            break
        if np.count_nonzero(now) < FEWEST:
            return now if not inside.any() else inside
        inside = now
        root = np.sqrt(weights[inside])[:, None]
        # The pull towards the transform before keeps matches on a line from shearing the rest away.
        pull = 0.05 * np.sqrt(weights[inside].sum()) * np.diag([query.patch * 4, query.patch * 4, 1.0])
        solution = np.linalg.lstsq(
            np.vstack([homogeneous[inside] * root, pull]),
            np.vstack([targets[inside] * root, pull @ transform.T]),
            rcond=None,
        )[0]
        transform = np.asarray(solution.T, dtype=np.float64)
    return inside


def _grown(inside: Bools, places: Floats, targets: Floats, weights: Floats, query: _Side, gallery: _Side) -> Bools:
    """Adds matches that continue what their neighbours say: things are neither flat nor stiff."""
    inside = inside.copy()
    for _ in range(10):
        known = np.flatnonzero(inside)
        if len(known) < FEWEST:
            break
        homogeneous = np.column_stack([places[known], np.ones(len(known))])
        affine = np.linalg.lstsq(homogeneous, targets[known], rcond=None)[0]
        linear = np.asarray(affine[:2], dtype=np.float64)
        scale, reach = _scale_and_reach(linear.T, query, gallery)
        away = _distances(places, places[known])
        nearest = _nearest(away, range(4))
        ahead = places[:, None] - places[known][nearest]
        expected = (targets[known][nearest] + ahead @ linear).mean(axis=1)
        second = np.take_along_axis(away, nearest[:, 1:2], axis=1)[:, 0]
        near = second <= 3.0 * max(query.patch, gallery.patch / max(scale, 1e-6))
        more = near & (np.linalg.norm(expected - targets, axis=1) <= reach) & (weights > 0.3)
        if not (more & ~inside).any():
            break
        inside |= more
    return inside


def _sparse(inside: Bools, points: Floats, patch: float) -> Bools:
    """Agreeing matches in thin company, which would stretch the box: chance hits, and what lies around the thing."""
    known = np.flatnonzero(inside)
    sparse = np.zeros(len(points), dtype=np.bool_)
    if len(known) < FEWEST:
        return sparse
    away = _distances(points[known], points[known])
    usual = float(np.median(np.sort(away, axis=1)[:, 4]))  # column 0 is the point itself
    company = np.count_nonzero(away <= max(3 * patch, 2 * usual), axis=1) - 1
    sparse[known] = company < max(1.0, 0.2 * float(np.median(company)))
    return sparse


def _box_around(descriptors: Descriptors, pair: int, index: Ints) -> Box:
    pair = pair if len(descriptors) > 1 else 0
    assert descriptors.xy is not None  # _Side.of has asked for it
    xy = descriptors.xy[pair].detach().double().cpu().numpy()
    half = patch_step(xy[descriptors.mask[pair].cpu().numpy()]) / 2
    low = (xy[index].min(axis=0) - half).clip(0, 1)
    high = (xy[index].max(axis=0) + half).clip(0, 1)
    return float(low[0]), float(low[1]), float(high[0] - low[0]), float(high[1] - low[1])
