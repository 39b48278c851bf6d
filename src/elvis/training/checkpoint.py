"""The state of a run on disk: whole or not there, and all that an exact continuation needs.

Batches follow from seed and step (`batches.py`) and nothing else is random, so the state is the step, the weights, the
optimiser, and the best head so far. Seeds of torch are kept too, for modules that draw numbers.
"""

from __future__ import annotations

import json
import os
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from elvis.errors import TrainingError

SCHEMA = 1
FILE = "checkpoint.pt"


@dataclass(slots=True)
class State:
    """Where a run stands.

    Attributes:
        step: how many steps are done.
        model: weights.
        optimiser: moments and rates of AdamW.
        best: weights of the best head so far; None before the first validation.
        best_step: after how many steps it was.
        best_map: its mAP on the held-out objects, in [0, 1].
        validations: of every validation so far: step and mAP.
        losses: the last ones, for what is said about a run that does not learn.
        torch_random: state of torch's own random numbers.
    """

    step: int
    model: dict[str, Tensor]
    optimiser: dict[str, Any]
    best: dict[str, Tensor] | None = None
    best_step: int = 0
    best_map: float = -1.0
    validations: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])
    losses: list[float] = field(default_factory=list[float])
    torch_random: Tensor = field(default_factory=torch.get_rng_state)


def save_state(folder: Path, state: State, belongs_to: dict[str, Any]) -> None:
    """Puts the state in the place of the one before; a kill at any moment leaves one of the two.

    Args:
        folder: of the run.
        state: what is kept.
        belongs_to: settings and data of the run, as plain JSON values.
    """
    content = {"schema": SCHEMA, "belongs_to": json.dumps(belongs_to, sort_keys=True)}
    content |= {name: getattr(state, name) for name in State.__slots__}
    temporary = folder / f".{FILE}.{os.getpid()}.tmp"
    try:
        with temporary.open("wb") as stream:
            torch.save(content, stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, folder / FILE)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise TrainingError(
            f"{folder / FILE} cannot be written ({error.strerror}): make room, then go on with --resume"
        ) from error


def load_state(folder: Path, belongs_to: dict[str, Any]) -> State:
    """The state that a run left, for going on with the same settings and data.

    Raises:
        TrainingError: there is none, it is damaged, or it belongs to other settings or pictures; names them.
    """
    file = folder / FILE
    if not file.is_file():
        raise TrainingError(f"{folder} holds no checkpoint: there is nothing to resume, leave --resume out")
    try:
        content: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
        before: dict[str, Any] = json.loads(content.pop("belongs_to"))
        if content.pop("schema") != SCHEMA:
            raise TrainingError(f"{file} was written by another version: train anew with --overwrite")
        state = State(**content)
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, TypeError, pickle.UnpicklingError) as error:
        raise TrainingError(f"{file} is damaged: train anew with --overwrite") from error
    now: dict[str, Any] = json.loads(json.dumps(belongs_to))
    for name in sorted(now.keys() | before.keys()):
        if now.get(name) != before.get(name):
            raise TrainingError(
                f"{folder} was trained with {name} {_short(before.get(name))}, and this run has "
                f"{_short(now.get(name))}: resume with the same, or train anew with --overwrite"
            )
    return state


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
