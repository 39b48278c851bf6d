"""Pictures and labels as a person has them: a folder an object, a CSV file, or pictures without any labels."""

from __future__ import annotations

import csv
import io
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from elvis.errors import TrainingError
from elvis.image_files import Skipped, find_images, shown
from elvis.training.config import TrainConfig
from elvis.training.examples import hold_out
from elvis.training.triplets import UNLABELLED, Ids


@dataclass(frozen=True, slots=True)
class LabelledPicture:
    """One file to train on.

    Attributes:
        path: where it lies.
        name: as people know it: relative to the folder, or as the CSV file writes it.
        label: of the object; None: it is right for nobody.
    """

    path: Path
    name: str
    label: str | None


@dataclass(frozen=True, slots=True)
class PictureSet:
    """What was found.

    Attributes:
        name: of the folder or file.
        pictures: in a fixed order.
        skipped: what was left out, and why.
        labelled: whether labels are meant to be used.
    """

    name: str
    pictures: tuple[LabelledPicture, ...]
    skipped: tuple[Skipped, ...]
    labelled: bool


def find_pictures(place: str | Path, *, self_supervised: bool = False) -> PictureSet:
    """The pictures to train on and their labels.

    Args:
        place: a folder with one folder an object (what lies beside those is right for nobody), a folder with an
            `images.csv`, or a CSV file. CSV files have the columns `path` and `label`; where they have a column
            `role`, only rows with role `train` count; an empty label is right for nobody.
        self_supervised: take all pictures, whatever their labels.

    Raises:
        TrainingError: there is nothing to train on; says what is missing.
    """
    place = Path(place)
    if not place.exists():
        raise TrainingError(f"{shown(place)}: no such file or folder")
    table = place / "images.csv" if place.is_dir() else place
    if table.is_file():
        pictures, skipped = _from_csv(table)
    else:
        pictures, skipped = _from_folders(place)
    if self_supervised:
        pictures = [LabelledPicture(each.path, each.name, None) for each in pictures]
    if not pictures:
        raise TrainingError(f"{shown(place)} holds no pictures{_because(skipped)}")
    name = place.resolve().name if place.is_dir() else place.stem
    if not self_supervised and not table.is_file() and all(each.label is None for each in pictures):
        raise TrainingError(
            f"{shown(place)} holds pictures but no folders of them: put those of each object into a folder of its own, "
            "or train without labels: --self-supervised"
        )
    return PictureSet(name, tuple(pictures), tuple(skipped), not self_supervised)


def _because(skipped: Sequence[Skipped]) -> str:
    if not skipped:
        return ""
    return f": {len(skipped)} files are none or cannot be read, as {shown(skipped[0].path)} ({skipped[0].reason})"


def _from_folders(folder: Path) -> tuple[list[LabelledPicture], list[Skipped]]:
    pictures: list[LabelledPicture] = []
    skipped: list[Skipped] = []
    for found in find_images([folder]):
        if isinstance(found, Skipped):
            skipped.append(found)
            continue
        parts = found.relative_to(folder).parts
        pictures.append(LabelledPicture(found, "/".join(parts), parts[0] if len(parts) > 1 else None))
    return pictures, skipped


def _from_csv(file: Path) -> tuple[list[LabelledPicture], list[Skipped]]:
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TrainingError(f"{shown(file)}: expected UTF-8, got something else at byte {error.start}") from error
    except OSError as error:
        raise TrainingError(f"{shown(file)} cannot be read: {error.strerror}") from error
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    pictures: dict[str, LabelledPicture] = {}
    skipped: list[Skipped] = []
    try:
        header = list(reader.fieldnames or ())
        if absent := [name for name in ("path", "label") if name not in header]:
            raise TrainingError(
                f"{shown(file)}: expected the columns path and label, found no {' and no '.join(absent)}"
            )
        for row in reader:
            path, label = row["path"], row["label"]
            if not path or label is None:
                raise TrainingError(f"{shown(file)}, line {reader.line_num}: expected a path and a label")
            if "role" in header and row["role"] != "train":
                continue
            if path in pictures:
                raise TrainingError(f"{shown(file)}, line {reader.line_num}: {path!r} stands there twice")
            where = file.parent / path
            if not os.path.isfile(where):
                skipped.append(Skipped(where, "no such file"))
                continue
            pictures[path] = LabelledPicture(where, path, label.strip() or None)
    except csv.Error as error:
        raise TrainingError(f"{shown(file)}, line {reader.reader.line_num}: {error}") from error
    if not pictures and not skipped and "role" in header:
        raise TrainingError(
            f"{shown(file)} has a column role, and no row with role train: there is nothing to train on"
        )
    return list(pictures.values()), skipped


def label_numbers(labels: Sequence[str | None]) -> Ids:
    """(P,) a number for each object, in the order of their names; `UNLABELLED` for None.

    Example:
        >>> label_numbers(["cup", None, "bowl", "cup"]).tolist()
        [1, -1, 0, 1]
    """
    numbers = {name: number for number, name in enumerate(sorted({label for label in labels if label is not None}))}
    return np.array([UNLABELLED if label is None else numbers[label] for label in labels], np.int64)


def check_trainable(name: str, labels: Sequence[str | None], config: TrainConfig, *, labelled: bool) -> list[str]:
    """Refuses what cannot be learnt from, before any time is spent; returns what a person should know.

    Example:
        >>> check_trainable("toys", ["cup", "cup"], TrainConfig(), labelled=True)
        Traceback (most recent call last):
        ...
        elvis.errors.TrainingError: toys: all 2 pictures show one object, 'cup': at least two are needed
    """
    if not labelled:
        if len(labels) < 2:
            raise TrainingError(f"{name}: one picture is too few: at least two are needed to be told apart")
        if config.augmented_share == 0:
            raise TrainingError(f"{name}: without labels all positives are augmented views: set augmented_share to 1")
        hold_out(label_numbers(labels), config.holdout, config.data_seed)
        return []
    counts = Counter(label for label in labels if label is not None)
    if not counts:
        raise TrainingError(f"{name}: not one picture has a label: label them, or train with --self-supervised")
    if len(counts) == 1 and None not in labels:
        raise TrainingError(
            f"{name}: all {len(labels)} pictures show one object, {next(iter(counts))!r}: at least two are needed"
        )
    single = sorted(label for label, count in counts.items() if count == 1)
    if len(single) == len(counts):
        raise TrainingError(
            f"{name}: every object has one picture only: add a second one of some, or train with --self-supervised"
        )
    hold_out(label_numbers(labels), config.holdout, config.data_seed)
    notes: list[str] = []
    if single:
        some = ", ".join(repr(label) for label in single[:3]) + (", …" if len(single) > 3 else "")
        notes.append(f"{len(single)} objects with a single picture serve as distractors only ({some})")
    if without := sum(label is None for label in labels):
        notes.append(f"{without} pictures without a label serve as distractors only")
    return notes
