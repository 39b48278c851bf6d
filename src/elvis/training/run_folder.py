"""The folder of a run: what it was started with, and whether its place is free."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elvis.errors import ElvisError, TrainingError
from elvis.image_files import shown
from elvis.training.checkpoint import FILE
from elvis.training.config import TrainConfig

RUN_FOLDER = "training"
"""In the head's folder: checkpoint, log and report of the run."""
SETTINGS = "settings.json"


@dataclass(frozen=True, slots=True)
class SavedRun:
    """What a training was started with; kept beside its checkpoint, so that resuming needs no more than the folder.

    Attributes:
        place: of the pictures.
        config: the recipe.
        start: the head that is trained further.
        self_supervised: whether labels are left aside.
    """

    place: str
    config: TrainConfig
    start: str | None
    self_supervised: bool

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "place": self.place,
            "config": self.config.to_dict(),
            "start": self.start,
            "self_supervised": self.self_supervised,
        }


def saved_run(out: str | Path) -> SavedRun:
    """What the unfinished training in a head's folder was started with."""
    file = Path(out) / RUN_FOLDER / SETTINGS
    if not file.is_file():
        raise TrainingError(f"{shown(out)} holds no unfinished training: leave --resume out")
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        config = TrainConfig.from_dict(values["config"])
        return SavedRun(values["place"], config, values["start"], values["self_supervised"])
    except (OSError, ValueError, KeyError, TypeError, ElvisError) as error:
        raise TrainingError(f"{shown(file)} is damaged: train anew with --overwrite") from error


def claim_place(out: Path, run: SavedRun, *, resume: bool, overwrite: bool) -> None:
    """Makes the folder of a run; refuses at once to write over what is there, or to resume what is not."""
    if resume:
        if not (out / RUN_FOLDER / FILE).is_file():
            raise TrainingError(f"{shown(out)} holds no unfinished training: leave --resume out")
        return
    if not overwrite:
        if (out / "config.json").exists():
            raise TrainingError(f"{shown(out)} holds a head already: name another folder, or add --overwrite")
        if (out / RUN_FOLDER / FILE).exists():
            raise TrainingError(f"{shown(out)} holds an unfinished training: go on with --resume, or add --overwrite")
    if out.exists() and not out.is_dir():
        raise TrainingError(f"{shown(out)} is a file: name a folder for the head")
    try:
        if overwrite and (out / RUN_FOLDER).exists():
            shutil.rmtree(out / RUN_FOLDER)
        (out / RUN_FOLDER).mkdir(parents=True, exist_ok=True)
        (out / RUN_FOLDER / SETTINGS).write_text(json.dumps(run.to_dict(), indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise TrainingError(f"{shown(out)} cannot be written: {error.strerror}") from error
