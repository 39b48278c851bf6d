"""What a data set is to the harness: pictures, judgements, and the protocol it is measured by."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Crop = tuple[float, float, float, float]
Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture of a data set.

    Attributes:
        name: as the data set writes it; this is what rankings name.
        path: where it lies on disk.
        crop: x, y, width, height as fractions of the upright picture; None takes all of it.
    """

    name: str
    path: Path
    crop: Crop | None = None


@dataclass(frozen=True, slots=True)
class Protocol:
    """How a data set is measured, and what one should know before citing the figure.

    Attributes:
        metric: form of AP: "rectangular" (precision at hits), "trapezoidal" (ROxford, RParis) or "ilias".
        cutoff: k of AP@k; None looks at the whole ranking.
        junk: what is taken out of a query's ranking.
        cropping: whether queries are cropped, and by what.
        licence: terms of the pictures.
        source: where to get them.
        settled: choices that the publication leaves open, and how they were made here.
    """

    metric: Literal["rectangular", "trapezoidal", "ilias"]
    cutoff: int | None
    junk: str
    cropping: str
    licence: str
    source: str
    settled: tuple[str, ...] = ()

    @property
    def metric_name(self) -> str:
        """The metric as a table writes it.

        Example:
            >>> Protocol("rectangular", 100, "none", "none", "MIT", "-").metric_name
            'mAP@100'
        """
        form = {"rectangular": "mAP", "trapezoidal": "mAP (trapezoidal)", "ilias": "mAP"}[self.metric]
        return form if self.cutoff is None else f"{form}@{self.cutoff}"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is right for each query; one a data set, or several (Medium and Hard) with rankings of their own.

    Attributes:
        name: "" where there is only one.
        positives: for each query, places in the gallery that are right.
        ignored: for each query, places that count neither for nor against it: junk, and the query itself
            where it lies in the gallery.
    """

    name: str
    positives: Sequence[Ids]
    ignored: Sequence[Ids]


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A data set, ready to be measured on.

    Attributes:
        name: what result lines call it.
        queries: what is searched for.
        gallery: what is searched in.
        judgements: what is right.
        protocol: how it is measured.
        missing: names of pictures that are not on disk. A missing query is not asked; a missing gallery
            picture is never found, and still counts where it would have been right.
        training: pictures that belong to the folder but take no part.
    """

    name: str
    queries: Sequence[Picture]
    gallery: Sequence[Picture]
    judgements: Sequence[Judgement]
    protocol: Protocol
    missing: frozenset[str] = field(default_factory=frozenset[str])
    training: int = 0

    def __post_init__(self) -> None:
        for judgement in self.judgements:
            for what, rows in (("positives", judgement.positives), ("ignored", judgement.ignored)):
                if len(rows) != len(self.queries):
                    raise ValueError(f"{what}: expected one row a query ({len(self.queries)}), got {len(rows)}")
                if any(len(row) and not 0 <= row.min() <= row.max() < len(self.gallery) for row in rows):
                    raise ValueError(f"{what}: expected places in a gallery of {len(self.gallery)}")

    @property
    def fingerprint(self) -> str:
        """SHA-256 over names, crops and judgements: what a saved ranking belongs to."""
        digest = hashlib.sha256()
        for pictures in (self.queries, self.gallery):
            for picture in pictures:
                digest.update(f"{picture.name}\0{picture.crop}\0".encode("utf-8", "surrogateescape"))
            digest.update(b"\1")
        for judgement in self.judgements:
            digest.update(judgement.name.encode())
            for row in (*judgement.positives, *judgement.ignored):
                digest.update(np.sort(row).astype("<i8").tobytes() + b"\2")
        digest.update("\0".join(sorted(self.missing)).encode("utf-8", "surrogateescape"))
        return digest.hexdigest()

    def without(self, names: frozenset[str]) -> Benchmark:
        """The same with more pictures counted as missing, as when one turns out to be unreadable."""
        return replace(self, missing=self.missing | names)

    def summary(self) -> str:
        """One line: sizes, metric, and what is missing.

        Example:
            >>> from elvis.evaluation.datasets.folder import FOLDER_PROTOCOL
            >>> Benchmark("toys", (), (), (), FOLDER_PROTOCOL).summary()
            'toys: 0 queries, 0 gallery pictures, mAP@100'
        """
        said = f"{self.name}: {len(self.queries):,} queries, {len(self.gallery):,} gallery pictures"
        said += f", {self.protocol.metric_name}"
        if self.missing:
            some = ", ".join(map(repr, sorted(self.missing)[:3])) + (", …" if len(self.missing) > 3 else "")
            said += f"; {len(self.missing):,} pictures missing or unreadable ({some})"
        return said
