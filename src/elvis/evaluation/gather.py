"""From a data set's pictures to descriptors in the cache, each extracted at most once."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from elvis.errors import DataSetError, UnreadableImage
from elvis.evaluation.cache import DescriptorCache
from elvis.evaluation.datasets.record import Benchmark, Crop, Picture
from elvis.evaluation.progress import OnProgress, Pace, no_progress
from elvis.images import open_image
from elvis.values import Descriptors

LOOK_AHEAD = 4
"""Pictures decoded while others are being extracted."""


class Extracts(Protocol):
    """What is asked of an extractor; `elvis.extract.Extractor` is one."""

    fingerprint: str
    """Names settings and weights, not the precision."""
    precision: str
    """What was computed in, such as bf16."""
    dim: int
    """Channels of a descriptor."""

    def extract(self, pictures: Iterable[Any]) -> Iterator[Descriptors]:
        """Descriptors of one picture each, in order; a picture is an image, or an image and a crop."""
        ...


def exact_fingerprint(extractor: Extracts) -> str:
    """Names settings, weights and precision: figures to be compared are not mixed of two precisions."""
    return hashlib.sha256(f"{extractor.fingerprint} {extractor.precision}".encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Collection:
    """A data set whose descriptors are all in the cache.

    Attributes:
        benchmark: the data set; pictures that could not be read count as missing.
        cache: where the descriptors are.
        keys: what each picture that is there is filed under.
        unreadable: picture names with the reason.
    """

    benchmark: Benchmark
    cache: DescriptorCache
    keys: dict[Picture, str]
    unreadable: dict[str, str]

    def vectors(self, pictures: Iterable[Picture]) -> NDArray[np.float32]:
        """(P, G) global vectors, in the order of the pictures."""
        rows = [self.cache.read_image_vector(self.keys[picture]).numpy() for picture in pictures]
        if len({row.shape for row in rows}) > 1:
            raise DataSetError(f"{self.benchmark.name}: its global vectors have different lengths")
        return np.stack(rows)


def gather(
    benchmark: Benchmark, extractor: Extracts, cache: DescriptorCache, on_progress: OnProgress = no_progress
) -> Collection:
    """Extract what the cache lacks. Whatever happens meanwhile, the next run goes on where this one stopped.

    Memory holds a few pictures, however large the data set is.
    """
    if cache.fingerprint != exact_fingerprint(extractor):
        raise ValueError("cache: expected one with the exact fingerprint of the extractor")
    pictures = list(dict.fromkeys((*benchmark.queries, *benchmark.gallery)))
    pictures = [picture for picture in pictures if picture.name not in benchmark.missing]
    pace = Pace(f"{benchmark.name}: descriptors", len(pictures), on_progress)
    keys: dict[Picture, str] = {}
    unreadable: dict[str, str] = {}
    waiting: deque[str] = deque()
    begun: set[str] = set()

    def new_pictures() -> Iterator[Image.Image | tuple[Image.Image, Crop]]:
        for picture, found in _look_ahead(pictures, cache):
            if isinstance(found, UnreadableImage):
                unreadable[picture.name] = str(found)
                pace.skip()
                continue
            key, image = found
            keys[picture] = key
            if image is None or key in begun:
                pace.skip()
                continue
            begun.add(key)
            waiting.append(key)
            yield image if picture.crop is None else (image, picture.crop)

    for descriptors in extractor.extract(new_pictures()):
        cache.write(waiting.popleft(), descriptors)
        pace.step()
    if waiting:
        raise ValueError(f"extractor: expected descriptors of every picture, got none of {len(waiting)}")
    for what, some in (("query", benchmark.queries), ("database picture", benchmark.gallery)):
        if not any(picture in keys for picture in some):
            reason = f", as {min(unreadable.values())}" if unreadable else ""
            raise DataSetError(f"{benchmark.name}: not one {what} can be read{reason}")
    return Collection(benchmark.without(frozenset(unreadable)), cache, keys, unreadable)


Found = tuple[str, Image.Image | None] | UnreadableImage


def _look_ahead(pictures: list[Picture], cache: DescriptorCache) -> Iterator[tuple[Picture, Found]]:
    """Keys of all pictures in order, and the decoded image of those that the cache lacks."""
    ahead: deque[tuple[Picture, Future[Found]]] = deque()
    with ThreadPoolExecutor(1, "elvis-decode") as worker:
        try:
            for picture in pictures:
                ahead.append((picture, worker.submit(_find, picture, cache)))
                if len(ahead) > LOOK_AHEAD:
                    first, future = ahead.popleft()
                    yield first, future.result()
            for first, future in ahead:
                yield first, future.result()
        finally:
            worker.shutdown(wait=True, cancel_futures=True)


def _find(picture: Picture, cache: DescriptorCache) -> Found:
    try:
        content = picture.path.read_bytes()
    except OSError as error:
        return UnreadableImage(f"{picture.path}: {error.strerror}")
    key = cache.key(content, picture.crop)
    if key in cache:
        return key, None
    try:
        return key, open_image(content)
    except UnreadableImage as error:
        return UnreadableImage(f"{picture.name}: {error}")
