"""All pictures of the same thing in a collection, put together.

Each picture's nearest by global vector are verified by the method, in both directions; two pictures belong together
where the weaker direction is convincing, and a group is what hangs together that way. Work grows with pictures ×
neighbours, memory with pictures only. What is verified is written to a journal as it is found, so that an interrupted
run goes on where it was.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from elvis.errors import StoreError
from elvis.models import Matcher
from elvis.ranking import IndexRanking
from elvis.store import Fetched, Index
from elvis.values import Descriptors

logger = logging.getLogger(__name__)

DEFAULT_THRESHOLDS = {"chamfer-ot": 0.01}
"""Mean vote from which a link counts, by method; measured in `docs/groups.md`."""
NEIGHBOURS = 20
SYNC_EVERY = 64
"""Pictures between two syncs of the journal: what a crash can cost."""


@dataclass(frozen=True, slots=True)
class Member:
    """A picture in a group.

    Attributes:
        path: as it was indexed.
        strength: mean vote of its best link to another member, in [0, 1].
    """

    path: str
    strength: float


def find_groups(
    index: Index,
    ranking: IndexRanking,
    *,
    threshold: float,
    neighbours: int = NEIGHBOURS,
    journal: Path,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[list[Member]]:
    """Groups of at least two pictures, largest first; inside a group the best linked first.

    Args:
        index: the collection.
        ranking: the method, bound to the index; not `global`.
        threshold: mean vote from which a link counts, in (0, 1].
        neighbours: how many of the nearest by global vector are looked at for each picture.
        journal: file that keeps what is verified; one of the same run is continued.
        on_progress: called with pictures done and all pictures.

    Raises:
        StoreError: the journal belongs to another index, state or setting.
    """
    if ranking.model is None:
        raise ValueError("method: expected one that matches descriptors, got global")
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold: expected a number in (0, 1], got {threshold}")
    if neighbours < 1:
        raise ValueError(f"neighbours: expected at least 1, got {neighbours}")
    paths = index.paths()
    run = {
        "extraction": index.card.extraction_fingerprint,
        "model": ranking.model.fingerprint,
        "commit": index.info()["commit"],
        "method": ranking.method,
        "neighbours": neighbours,
    }
    paths = index.paths()
    verifier = _Verifier(index, ranking, ranking.model, paths)
    with _Journal(journal, run) as kept:
        for number in range(len(kept.looked_at), len(paths)):
            near = verifier.nearest(number, neighbours)
            # A pair is verified once: by the earlier picture, or by the later one where the earlier had not seen it.
            new = {other: row for other, row in near.items() if other > number or number not in kept.looked_at[other]}
            links = verifier.strengths(number, new) if new else []
            kept.add(list(near), [(number, other, strength) for other, strength in links])
            if on_progress is not None:
                on_progress(number + 1, len(paths))
        return _hanging_together(paths, kept.links, threshold)


class _Verifier:
    """Looks up a picture's nearest and scores them; keeps nothing from one picture to the next."""

    def __init__(self, index: Index, ranking: IndexRanking, model: Matcher, paths: list[str]) -> None:
        self._index, self._from_raw, self._model, self._paths = index, ranking.from_raw, model, paths
        self._number = {path: number for number, path in enumerate(paths)}

    def nearest(self, number: int, count: int) -> dict[int, int]:
        """Numbers and row ids of the nearest other pictures by global vector."""
        own = self._fetch([self._paths[number]])
        if own.descriptors is None or own.descriptors.image_vector is None:
            return {}
        found = self._index.nearest(own.descriptors.image_vector[0].float(), count + 1)
        near = {self._number[each.path]: each.row_id for each in found if each.path in self._number}
        near.pop(number, None)
        return dict(list(near.items())[:count])

    def strengths(self, number: int, others: dict[int, int]) -> list[tuple[int, float]]:
        """Mean vote of the weaker direction with each of the others that can be read."""
        own, rest = self._fetch([self._paths[number]]), self._fetch(list(others.values()))
        if own.descriptors is None or rest.descriptors is None:
            return []
        with torch.inference_mode():
            one, many = self._prepared(own.descriptors), self._prepared(rest.descriptors)
            forth = self._model.score(one, many)
            back = self._model.score(many, one.select([0] * len(many)))
        mean = torch.minimum(forth, back) / (one.counts + many.counts)
        numbers = {row: other for other, row in others.items()}
        # Rounded as the journal keeps them, so that a run that was stopped ends in the same groups.
        return [(numbers[row], round(strength, 6)) for row, strength in zip(rest.row_ids, mean.tolist(), strict=True)]

    def _prepared(self, descriptors: Descriptors) -> Descriptors:
        return self._model.prepare(descriptors) if self._from_raw else descriptors

    def _fetch(self, pictures: Sequence[str | int]) -> Fetched:
        fetched = self._index.fetch(pictures, raw=self._from_raw, dtype=None)
        for reason in fetched.damaged.values():
            logger.warning("left out: %s", reason)
        return fetched


class _Journal:
    """What is verified so far, one line a picture, on disk; continues an earlier one of the same run."""

    def __init__(self, path: Path, run: dict[str, Any]) -> None:
        self._path, self._run = path, run
        self.looked_at: list[frozenset[int]] = []
        self.links: list[tuple[int, int, float]] = []

    def __enter__(self) -> _Journal:
        whole = self._read() if self._path.exists() else 0
        self._stream = self._path.open("r+" if self._path.exists() else "w", encoding="utf-8")
        self._stream.truncate(whole)
        self._stream.seek(whole)
        if whole == 0:
            self._write({"run": self._run})
        return self

    def __exit__(self, *_: object) -> None:
        self._sync()
        self._stream.close()

    def add(self, near: list[int], links: list[tuple[int, int, float]]) -> None:
        """The next picture: what is near it, and what was verified."""
        self._write({"near": near, "links": [[other, strength] for _, other, strength in links]})
        self.looked_at.append(frozenset(near))
        self.links.extend(links)
        if len(self.looked_at) % SYNC_EVERY == 0:
            self._sync()

    def _read(self) -> int:
        """Takes in the whole lines that are there; gives where they end. A torn last line is written anew."""
        end = 0
        with self._path.open("rb") as stream:
            for number, line in enumerate(stream):
                if not line.endswith(b"\n"):
                    break
                try:
                    entry = json.loads(line)
                    if number == 0:
                        self._check(entry["run"])
                    else:
                        self.links.extend((number - 1, other, strength) for other, strength in entry["links"])
                        self.looked_at.append(frozenset(entry["near"]))
                except (ValueError, KeyError, TypeError) as error:
                    raise StoreError(
                        f"{self._path} is no journal of elvis groups: remove it, or name another"
                    ) from error
                end += len(line)
        return end

    def _check(self, run: dict[str, Any]) -> None:
        if changed := sorted(name for name in self._run if run.get(name) != self._run[name]):
            raise StoreError(
                f"{self._path} belongs to a run with another {changed[0]}: remove it to start again, or name another"
            )

    def _write(self, entry: dict[str, Any]) -> None:
        self._stream.write(json.dumps(entry) + "\n")

    def _sync(self) -> None:
        self._stream.flush()
        os.fsync(self._stream.fileno())


def _hanging_together(paths: list[str], links: list[tuple[int, int, float]], threshold: float) -> list[list[Member]]:
    """Connected pictures, found with a union–find forest."""
    root = list(range(len(paths)))

    def find(number: int) -> int:
        while root[number] != number:
            root[number] = root[root[number]]
            number = root[number]
        return number

    best = [0.0] * len(paths)
    for one, other, strength in links:
        if strength >= threshold:
            root[find(one)] = find(other)
            best[one], best[other] = max(best[one], strength), max(best[other], strength)
    groups: dict[int, list[Member]] = {}
    for number, path in enumerate(paths):
        if best[number] > 0:
            groups.setdefault(find(number), []).append(Member(path, best[number]))
    ordered = [sorted(group, key=lambda member: (-member.strength, member.path)) for group in groups.values()]
    return sorted(ordered, key=lambda group: (-len(group), group[0].path))
