"""From picture files to an index: what is new is decoded ahead, described, and committed in batches."""

from __future__ import annotations

import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from PIL import Image

from elvis.image_files import Skipped
from elvis.images import MAX_PIXELS
from elvis.models import MODELS
from elvis.picture_queue import Decoded, PictureQueue, interruptible
from elvis.picture_walk import Walk, walk
from elvis.store import Index, IndexCard, Record, Stamp
from elvis.store.metadata import Metadata
from elvis.values import Descriptors

COMMIT_EVERY = 64
"""Pictures a commit: what a crash can cost, and what is held in memory."""
_JOIN_EVERY = 64  # commits between two looks at whether files should be joined
_STAMPS_AT_ONCE = 1000


class PictureExtractor(Protocol):
    """What indexing needs of an extractor; `elvis.extract.Extractor` has it."""

    dim: int
    image_dim: int
    fingerprint: str
    settings: Any

    def extract(self, pictures: Iterable[Image.Image]) -> Iterator[Descriptors]:
        """Descriptors of each picture, in order."""
        ...


class Preparer(Protocol):
    """What indexing needs of a model; `elvis.load_model` gives one."""

    config: Any

    @property
    def fingerprint(self) -> str:
        """Names what `prepare` does."""
        ...

    def prepare(self, descriptors: Descriptors) -> Descriptors:
        """What depends on one picture alone."""
        ...


@dataclass(frozen=True, slots=True)
class Progress:
    """How far indexing has come.

    Attributes:
        done: pictures dealt with, skipped ones included.
        total: pictures that had to be looked at.
        committed: pictures that are safely stored.
        seconds: since the first of them.
    """

    done: int
    total: int
    committed: int
    seconds: float


@dataclass(slots=True)
class Report:
    """What indexing did.

    Attributes:
        added: new pictures.
        updated: pictures whose content had changed.
        unchanged: pictures that were there already; those whose time stamp alone had changed are counted too.
        removed: pictures that had vanished from the disk.
        skipped: every file that was not indexed, with its reason.
        seconds: that it took.
        unmatched: paths in the metadata that belong to no picture of the index.
    """

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    removed: int = 0
    skipped: list[Skipped] = field(default_factory=list[Skipped])
    seconds: float = 0.0
    unmatched: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class Estimate:
    """What indexing would take, from indexing a few of the pictures for real.

    Attributes:
        pictures: that would be added or looked at again.
        unchanged: that are there already.
        bytes: on disk for the new ones; updated ones replace their old bytes in time.
        hours: for all of them.
        sampled: pictures that were measured.
        skipped: files that would not be indexed, as far as can be told without decoding them.
    """

    pictures: int
    unchanged: int
    bytes: int
    hours: float
    sampled: int
    skipped: list[Skipped]


def card_for(
    extractor: PictureExtractor, model: Preparer, *, keep_raw: bool = False, store: str = "float16"
) -> IndexCard:
    """The card of an index that this extractor and model would make.

    Args:
        extractor: describes pictures.
        model: prepares the descriptors.
        keep_raw: keep them as the extractor gave them too, so that the model can be exchanged later.
        store: how prepared descriptors are stored, float16 or int8.
    """
    kinds = {kind: name for name, kind in MODELS.items()}
    name = next((kinds[kind] for kind in type(model).__mro__ if kind in kinds), type(model).__name__)
    with torch.no_grad():
        prepared = model.prepare(Descriptors(torch.ones(1, 2, extractor.dim)))
    return IndexCard(
        extraction=extractor.settings.to_dict(),
        extraction_fingerprint=extractor.fingerprint,
        model=name,
        model_settings=asdict(model.config),
        model_fingerprint=model.fingerprint,
        dim=prepared.vectors.shape[2],
        image_dim=extractor.image_dim,
        keep_raw=keep_raw,
        descriptor_dtype=store,
    )


def add_pictures(
    index: Index,
    places: Iterable[Path | str],
    extractor: PictureExtractor,
    model: Preparer,
    *,
    prune: bool = False,
    metadata: Metadata | None = None,
    commit_every: int = COMMIT_EVERY,
    max_pixels: int = MAX_PIXELS,
    on_progress: Callable[[Progress], None] | None = None,
) -> Report:
    """Brings an index up to date with picture files and folders.

    Pictures that are there with the same size and time stamp are left alone; of others the content decides. Every
    `commit_every` pictures are committed: after a crash the same call goes on from there. At Ctrl-C what has been
    described is committed, then KeyboardInterrupt goes on; a second Ctrl-C does not wait.

    Args:
        index: open for writing.
        places: files and folders.
        extractor: as when the index was made.
        model: likewise.
        prune: remove pictures below the given folders that are no longer on the disk. A folder that cannot be
            read (a disk that is not mounted) costs nothing.
        metadata: columns to keep beside the pictures, from `elvis.store.metadata.read_metadata`.
        commit_every: pictures a commit.
        max_pixels: larger pictures are skipped.
        on_progress: called after each picture and each commit.

    Raises:
        IndexMismatch: the index was made with another extractor or model.
    """
    card = card_for(extractor, model, keep_raw=index.card.keep_raw, store=index.card.descriptor_dtype)
    index.card.check(card, str(index.folder))
    if index.needs_repair:
        index.repair()
    found = walk(list(places), index.stamps())
    run = _Run(index, model, found, metadata, commit_every, on_progress)
    run.store_metadata()
    with interruptible() as stop:
        pictures = PictureQueue(found.changed, found.known, max_pixels, stop)
        try:
            run.index_all(extractor, pictures)
        finally:
            pictures.close()
        run.finish(prune=prune and not stop.is_set())
        if stop.is_set():
            raise KeyboardInterrupt
    return run.report


def estimate(
    index: Index | None,
    places: Iterable[Path | str],
    extractor: PictureExtractor,
    model: Preparer,
    *,
    keep_raw: bool = False,
    store: str = "float16",
    sample: int = 6,
    max_pixels: int = MAX_PIXELS,
) -> Estimate:
    """What `add_pictures` would take: bytes and hours, from indexing a few of the pictures into a temporary index.

    Args:
        index: that the pictures would be added to; None: a new one.
        places: files and folders.
        extractor: describes pictures.
        model: prepares the descriptors.
        keep_raw: for a new index.
        store: for a new index, float16 or int8.
        sample: pictures to measure, after one to warm up.
        max_pixels: as in `add_pictures`.
    """
    if index is not None:
        keep_raw, store = index.card.keep_raw, index.card.descriptor_dtype
    card = card_for(extractor, model, keep_raw=keep_raw, store=store)
    found = walk(list(places), index.stamps() if index else {})
    step = max(1, len(found.changed) // (sample + 1))
    chosen = [path for path, _, _ in found.changed[::step][: sample + 1]]
    seconds: list[float] = []
    with (
        tempfile.TemporaryDirectory(prefix="elvis-") as folder,
        Index.create(Path(folder, "index"), card) as trial,
    ):
        for part in (chosen[:1], chosen[1:]):
            started = time.perf_counter()
            add_pictures(trial, part, extractor, model, max_pixels=max_pixels)
            seconds.append(time.perf_counter() - started)
        count, size = len(trial), int(trial.info()["bytes"])
    measured = len(chosen) - 1 or 1
    each = (seconds[1] if len(chosen) > 1 else seconds[0]) / measured
    return Estimate(
        pictures=len(found.changed),
        unchanged=found.unchanged,
        bytes=round(size / max(count, 1) * len(found.changed)),
        hours=each * len(found.changed) / 3600,
        sampled=measured if chosen else 0,
        skipped=found.skipped,
    )


class _Run:
    """One call of `add_pictures`: what is waiting for its commit, and the report."""

    def __init__(
        self,
        index: Index,
        model: Preparer,
        found: Walk,
        metadata: Metadata | None,
        commit_every: int,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self._index, self._model, self._found, self._metadata = index, model, found, metadata
        self._commit_every, self._on_progress = commit_every, on_progress
        self._started = time.perf_counter()
        self._waiting: list[Record] = []
        self._stamps: dict[str, Stamp] = {}
        self._done = self._commits = 0
        self.report = Report(unchanged=found.unchanged, skipped=list(found.skipped))

    def store_metadata(self) -> None:
        """Metadata of the pictures that are there already; new ones bring theirs along."""
        if self._metadata is not None:
            self._index.set_metadata(self._metadata)

    def index_all(self, extractor: PictureExtractor, pictures: PictureQueue) -> None:
        """Describes and stores every picture of the queue."""
        under_way: deque[Decoded] = deque()

        def decoded() -> Iterator[Image.Image]:
            for each in pictures:
                if each.image is not None:
                    under_way.append(each)
                    yield each.image
                    continue
                if each.reason is not None:
                    kept = "; the index keeps what it had" if each.path in self._found.known else ""
                    self.report.skipped.append(Skipped(Path(each.path), each.reason + kept))
                else:
                    self.report.unchanged += 1
                    self._stamps[each.path] = each.stamp
                self._step(1)

        for raw in extractor.extract(decoded()):
            each = under_way.popleft()
            with torch.no_grad():
                prepared = self._model.prepare(raw)
            values = self._metadata.values_of(each.path) if self._metadata is not None else {}
            self._waiting.append(Record(each.path, each.stamp, raw, prepared, values))
            self._step(1)
            if len(self._waiting) >= self._commit_every:
                self._commit()

    def finish(self, *, prune: bool) -> None:
        """Commits the rest, removes what vanished, and tidies up."""
        self._commit()
        if prune:
            self.report.removed = self._index.remove(self._found.vanished())
        self._index.compact()
        if self._metadata is not None:
            self.report.unmatched = self._metadata.unmatched(self._index.stamps())
        self.report.seconds = time.perf_counter() - self._started

    def _commit(self) -> None:
        if self._stamps:
            self._index.touch(self._stamps)
            self._stamps = {}
        if not self._waiting:
            return
        records, self._waiting = self._waiting, []
        replaced = [record.path for record in records if record.path in self._found.known]
        self._index.put(records, replaced=replaced)
        self.report.updated += len(replaced)
        self.report.added += len(records) - len(replaced)
        self._commits += 1
        if self._commits % _JOIN_EVERY == 0:
            self._index.compact()
        self._step(0)

    def _step(self, pictures: int) -> None:
        self._done += pictures
        if len(self._stamps) >= _STAMPS_AT_ONCE:
            self._index.touch(self._stamps)
            self._stamps = {}
        if self._on_progress is not None:
            committed = self.report.added + self.report.updated
            seconds = time.perf_counter() - self._started
            self._on_progress(Progress(self._done, len(self._found.changed), committed, seconds))
