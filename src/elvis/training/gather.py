"""From pictures to examples: every file is read and judged first, then what is not kept yet is extracted."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from elvis.errors import TrainingError, UnreadableImage
from elvis.evaluation.cache import default_cache_folder
from elvis.evaluation.gather import Extracts, exact_fingerprint
from elvis.evaluation.progress import OnProgress, Pace, no_progress
from elvis.image_files import Skipped, shown, why_not_opened
from elvis.images import open_image
from elvis.training.augment import augmented, view_seed
from elvis.training.config import TrainConfig
from elvis.training.examples import Examples, examples_fingerprint, hold_out
from elvis.training.features import FeatureStore
from elvis.training.sources import LabelledPicture, PictureSet, check_trainable, label_numbers
from elvis.training.triplets import Ids, Neighbours, nearest_neighbours
from elvis.training.validation import shortlist_length

_AHEAD = 2


@dataclass(frozen=True, slots=True, eq=False)
class Gathered:
    """Examples, and what a person should know about them.

    Attributes:
        examples: to train on.
        pictures: how many.
        objects: how many with two pictures or more.
        skipped: files that were left out, and why.
        notes: what else was noticed, for people.
        extracted: pictures and views that were not kept from an earlier run.
    """

    examples: Examples
    pictures: int
    objects: int
    skipped: tuple[Skipped, ...]
    notes: tuple[str, ...]
    extracted: int


def feature_folder() -> Path:
    """Where descriptors for training are kept unless told otherwise."""
    return default_cache_folder().parent / "training"


def gather(
    found: PictureSet,
    config: TrainConfig,
    extractor: Extracts,
    folder: str | Path | None = None,
    *,
    on_progress: OnProgress = no_progress,
) -> Gathered:
    """Extracts the pictures and their augmented views, each once and for all runs to come.

    All files are opened before the first one is described: what cannot be read or learnt from is told at once.

    Args:
        found: pictures and labels.
        config: the recipe; `views`, `data_seed`, `holdout` and `neighbours` matter here.
        extractor: with the recipe's extraction settings.
        folder: where descriptors are kept; None: the user's cache folder.
        on_progress: told after every picture.

    Raises:
        TrainingError: nothing can be learnt from what is readable.
    """
    check_trainable(found.name, [each.label for each in found.pictures], config, labelled=found.labelled)
    fingerprint = exact_fingerprint(extractor)
    store = FeatureStore(folder or feature_folder(), fingerprint, config.extraction.to_dict())
    readable, unreadable = _read_all(found, config, store, on_progress)
    readable, notes = _without_doubles(readable)
    labels = [picture.label for picture, _ in readable]
    notes += check_trainable(found.name, labels, config, labelled=found.labelled)
    keys = [[_key(sha, view, config.data_seed) for view in range(1 + config.views)] for _, sha in readable]
    extracted = _extract(found.name, readable, keys, config, extractor, store, on_progress)
    views = np.array([[store.row(key) for key in some] for some in keys], np.int64)
    numbers = label_numbers(labels)
    held_out = hold_out(numbers, config.holdout, config.data_seed)
    examples = _examples(store, views, numbers, held_out, [picture.name for picture, _ in readable], config)
    flat = [key for some in keys for key in some]
    examples = replace(examples, fingerprint=examples_fingerprint([fingerprint, *flat], numbers, held_out, config))
    counts = np.bincount(numbers[numbers >= 0], minlength=1)
    return Gathered(
        examples,
        len(readable),
        int((counts >= 2).sum()),
        (*found.skipped, *unreadable),
        tuple(notes),
        extracted,
    )


def _examples(
    store: FeatureStore, views: Ids, labels: Ids, held_out: np.ndarray, names: Sequence[str], config: TrainConfig
) -> Examples:
    vectors = store.image_vectors(views[:, 0])
    similarity = np.ones(len(views), np.float32)
    if views.shape[1] > 1:
        to_views = [
            np.einsum("pg,pg->p", vectors, store.image_vectors(views[:, view])) for view in range(1, views.shape[1])
        ]
        similarity = np.mean(to_views, axis=0)
    length = shortlist_length(config)
    by_view = None
    if (labels < 0).all() and views.shape[1] > 1:
        cosines = store.image_vectors(views[:, 1]) @ vectors.T
        order = np.argsort(-cosines, axis=1, kind="stable")[:, :length]
        by_view = Neighbours(order, np.take_along_axis(cosines, order, axis=1))
    return Examples(
        rows=store,
        labels=labels,
        views=views,
        neighbours=nearest_neighbours(vectors, length),
        held_out=held_out,
        view_similarity=similarity,
        names=names,
        fingerprint="",
        view_neighbours=by_view,
    )


def _key(sha256: str, view: int, seed: int) -> str:
    return f"{sha256} 0" if view == 0 else f"{sha256} {view} {view_seed(sha256, view, seed):016x}"


def _read_all(
    found: PictureSet, config: TrainConfig, store: FeatureStore, on_progress: OnProgress
) -> tuple[list[tuple[LabelledPicture, str]], list[Skipped]]:
    """Every picture with the SHA-256 of its content; those to be extracted are decoded once, to see if they can."""

    def judge(picture: LabelledPicture) -> str | Skipped:
        try:
            content = picture.path.read_bytes()
            sha256 = hashlib.sha256(content).hexdigest()
            if any(_key(sha256, view, config.data_seed) not in store for view in range(1 + config.views)):
                open_image(content)
        except UnreadableImage as error:
            return Skipped(picture.path, str(error).partition(": ")[2])
        except OSError as error:
            return Skipped(picture.path, why_not_opened(error))
        return sha256

    readable: list[tuple[LabelledPicture, str]] = []
    unreadable: list[Skipped] = []
    pace = Pace(f"{found.name}: reading", len(found.pictures), on_progress)
    for picture, judged in _look_ahead(found.pictures, judge):
        if isinstance(judged, Skipped):
            unreadable.append(judged)
        else:
            readable.append((picture, judged))
        pace.step()
    return readable, unreadable


def _look_ahead(items: Sequence[Any], work: Any) -> Iterator[tuple[Any, Any]]:
    """Each item with what `work` makes of it, in order, a few ahead in a thread."""
    ahead: deque[tuple[Any, Future[Any]]] = deque()
    with ThreadPoolExecutor(1, "elvis-decode") as worker:
        try:
            for item in items:
                ahead.append((item, worker.submit(work, item)))
                if len(ahead) > _AHEAD:
                    first, future = ahead.popleft()
                    yield first, future.result()
            for first, future in ahead:
                yield first, future.result()
        finally:
            worker.shutdown(wait=True, cancel_futures=True)


def _without_doubles(
    readable: list[tuple[LabelledPicture, str]],
) -> tuple[list[tuple[LabelledPicture, str]], list[str]]:
    """The same file twice teaches nothing, and under two labels it teaches something wrong."""
    first: dict[str, LabelledPicture] = {}
    kept: list[tuple[LabelledPicture, str]] = []
    for picture, sha256 in readable:
        if (other := first.get(sha256)) is None:
            first[sha256] = picture
            kept.append((picture, sha256))
        elif other.label != picture.label:
            raise TrainingError(
                f"{shown(other.name)} and {shown(picture.name)} are the same file under two labels, "
                f"{other.label!r} and {picture.label!r}: take one away"
            )
    doubles = len(readable) - len(kept)
    return kept, [f"{doubles} pictures are exact copies of others and were left out"] if doubles else []


def _extract(
    name: str,
    readable: Sequence[tuple[LabelledPicture, str]],
    keys: Sequence[Sequence[str]],
    config: TrainConfig,
    extractor: Extracts,
    store: FeatureStore,
    on_progress: OnProgress,
) -> int:
    pace = Pace(f"{name}: descriptors", len(readable) * (1 + config.views), on_progress)
    waiting: deque[str] = deque()
    missing = [
        (picture, sha256, [view for view, key in enumerate(some) if key not in store])
        for (picture, sha256), some in zip(readable, keys, strict=True)
    ]

    def make(item: tuple[LabelledPicture, str, list[int]]) -> list[tuple[str, Image.Image]]:
        picture, sha256, wanted = item
        if not wanted:
            return []
        try:
            content = picture.path.read_bytes()
        except OSError as error:
            raise TrainingError(f"{shown(picture.path)}: {why_not_opened(error)}: run again") from error
        if hashlib.sha256(content).hexdigest() != sha256:
            raise TrainingError(f"{shown(picture.path)} changed while the pictures were read: run again")
        image = open_image(content)
        return [
            (
                _key(sha256, view, config.data_seed),
                augmented(image, view_seed(sha256, view, config.data_seed)) if view else image,
            )
            for view in wanted
        ]

    def images() -> Iterator[Image.Image]:
        for (_, _, wanted), made in _look_ahead(missing, make):
            for _ in range(1 + config.views - len(wanted)):
                pace.skip()
            for key, image in made:
                waiting.append(key)
                yield image

    done = 0
    try:
        for descriptors in extractor.extract(images()):
            store.add(waiting.popleft(), descriptors)
            done += 1
            pace.step()
    finally:
        store.flush()  # also what was extracted before Ctrl-C
    return done
