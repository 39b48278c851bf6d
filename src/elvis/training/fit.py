"""The whole road from pictures to a head on disk, with what it brought."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import elvis
from elvis.errors import TrainingError
from elvis.evaluation.bootstrap import Difference, paired_difference
from elvis.evaluation.progress import OnProgress, Pace, no_progress
from elvis.extract import Extractor
from elvis.image_files import Skipped, shown
from elvis.models import Matcher, load_model
from elvis.models.elvis import Elvis
from elvis.training.config import TrainConfig
from elvis.training.examples import Examples
from elvis.training.gather import Gathered, gather
from elvis.training.loop import StepReport, Trained, train
from elvis.training.processes import Processes, joined, own_device
from elvis.training.run_folder import RUN_FOLDER, SavedRun, claim_place
from elvis.training.sources import check_trainable, find_pictures
from elvis.training.validation import average_precisions, hand_made_methods, questions


def load_head(place: str | Path) -> Elvis:
    """A head to train further, from a folder or the hub."""
    head = load_model("elvis", place)
    assert isinstance(head, Elvis)  # what MODELS has under this name
    return head


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """What a training brought.

    Attributes:
        head: folder of the head.
        trained: the run.
        pictures: that were used.
        objects: of them with two pictures or more; 0 without labels.
        skipped: files that were left out, and why.
        notes: what else a person should know.
        precisions: AP in [0, 1] of every method for every held-out query: `global`, the methods without training,
            `before` where a head was trained further, and `elvis`, the new head; empty where nothing was held out.
        seconds: of the whole run, this time.
    """

    head: Path
    trained: Trained
    pictures: int
    objects: int
    skipped: tuple[Skipped, ...]
    notes: tuple[str, ...]
    precisions: Mapping[str, NDArray[np.float64]]
    seconds: float

    @property
    def best_hand_made(self) -> str | None:
        """The best method without training on the same queries; None where nothing was held out."""
        names = [name for name in self.precisions if "@" in name]
        return max(names, key=lambda name: float(self.precisions[name].mean())) if names else None

    def gain_over(self, method: str) -> Difference:
        """How much higher the mAP of the new head is, with its 95 % interval over the queries."""
        return paired_difference([(self.precisions[method], self.precisions["elvis"])])

    def to_dict(self) -> dict[str, Any]:
        """All that a machine wants to know, as plain JSON values; mAP in percent."""
        return {
            "head": str(self.head),
            "pictures": self.pictures,
            "objects": self.objects,
            "anchors": self.trained.anchors,
            "skipped": [{"path": str(each.path), "reason": each.reason} for each in self.skipped],
            "notes": list(self.notes),
            "queries": len(next(iter(self.precisions.values()), ())),
            "map": {name: round(100 * float(values.mean()), 2) for name, values in self.precisions.items()},
            "gain": {
                name: {part: round(100 * value, 2) for part, value in asdict(self.gain_over(name)).items()}
                for name in self.precisions
                if name != "elvis"
            },
            "best_step": self.trained.step,
            "validations": [[step, round(100 * found, 2)] for step, found in self.trained.validations],
            "stuck": self.trained.stuck,
            "seconds": round(self.seconds, 1),
        }


def fit(
    place: str | Path,
    out: str | Path,
    config: TrainConfig,
    *,
    start: str | Path | None = None,
    self_supervised: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    cache: str | Path | None = None,
    device: str = "cpu",
    tensorboard: bool | None = None,
    on_progress: OnProgress = no_progress,
    on_step: Callable[[StepReport], None] = lambda report: None,
) -> Fitted:
    """Trains a head on a person's own pictures, or on published files, and measures it on held-out objects.

    Args:
        place: what `find_pictures` takes, or a folder of published training files.
        out: folder for the head; checkpoint, log and report go into `training/` below it.
        config: the recipe; see `recipe_for` for one that fits a head to start from.
        start: folder or hub name of a head to train further; the recipe must be `recipe_for` it.
        self_supervised: learn from augmented views, without labels.
        resume: go on from the checkpoint in `out`.
        overwrite: train anew where there is a head or a checkpoint.
        cache: folder for extracted descriptors; None: the user's.
        device: where to compute.
        tensorboard: see `train`.
        on_progress: told while pictures are read and described, and while methods are measured.
        on_step: told after every step.

    Raises:
        TrainingError: nothing can be learnt from the pictures, or `out` is taken.
    """
    began, place, out = time.monotonic(), Path(place), Path(out)
    if self_supervised:
        config = config.changed({"augmented_share": 1.0, "views": max(1, config.views)})
    first = None if start is None else load_head(start)
    run = SavedRun(str(place), config, None if start is None else str(start), self_supervised)
    device = own_device(device)
    with joined(device) as processes:
        processes.first_says(lambda: claim_place(out, run, resume=resume, overwrite=overwrite))
        found, extraction = _examples(place, config, self_supervised, cache, device, on_progress, processes)
        trained = train(
            found.examples,
            config,
            out / RUN_FOLDER,
            start=first,
            resume=resume,
            device=device,
            tensorboard=tensorboard,
            on_step=on_step,
        )
        precisions = processes.first_says(lambda: _measure(found.examples, trained, first, config, device, on_progress))
        fitted = Fitted(
            out,
            trained,
            found.pictures,
            found.objects,
            found.skipped,
            found.notes,
            precisions,
            time.monotonic() - began,
        )
        processes.first_says(lambda: _save(fitted, place.resolve().name, config, extraction))
    return fitted


def recipe_for(start: Elvis, config: TrainConfig) -> TrainConfig:
    """The recipe with the settings of a head that is trained further: these cannot change.

    Raises:
        TrainingError: the head does not say how its descriptors were extracted.
    """
    if not start.config.extraction:
        raise TrainingError(
            "the head to start from does not say how its descriptors are extracted: pass one that `elvis train` wrote"
        )
    settings = {name: value for name, value in asdict(start.config).items() if name not in _NOT_OF_THE_HEAD}
    starts = {"vote_start": "xavier", "projection_start": "xavier"}
    return config.changed({**starts, "head": settings, "extraction": start.config.extraction})


_NOT_OF_THE_HEAD = ("input_dim", "extraction", "card")


def _examples(
    place: Path,
    config: TrainConfig,
    self_supervised: bool,
    cache: str | Path | None,
    device: str,
    on_progress: OnProgress,
    processes: Processes,
) -> tuple[Gathered, Mapping[str, Any]]:
    """Examples, and the extraction settings that their descriptors have; none are known of published files."""
    from elvis.importing.research import is_research_folder, read_research_folder
    from elvis.training.research import research_examples

    if place.is_dir() and is_research_folder(place) and not self_supervised:
        files = read_research_folder(place, neighbours=max(config.neighbours, config.validation_depth))
        examples, notes = research_examples(files, config, place.resolve().name)
        objects = int((np.unique(examples.labels, return_counts=True)[1] >= 2).sum())
        return Gathered(examples, len(examples.labels), objects, (), tuple(notes), 0), {}
    extractor: Extractor | None = None

    def work() -> Gathered:
        nonlocal extractor
        found = find_pictures(place, self_supervised=self_supervised)
        # Before a backbone is loaded, perhaps even downloaded.
        check_trainable(found.name, [each.label for each in found.pictures], config, labelled=found.labelled)
        extractor = extractor or Extractor(config.extraction, device=device)
        return gather(found, config, extractor, cache, on_progress=on_progress)

    if processes.world == 1:
        return work(), config.extraction.to_dict()
    # The first process extracts; the others wait, and then all of them find everything kept.
    processes.first_says(lambda: work() and None)
    return work(), config.extraction.to_dict()


def _measure(
    examples: Examples,
    trained: Trained,
    start: Elvis | None,
    config: TrainConfig,
    device: str,
    on_progress: OnProgress,
) -> dict[str, NDArray[np.float64]]:
    asked = questions(examples, config)
    if asked is None:
        return {}
    methods: dict[str, Matcher | None] = {"global": None, **hand_made_methods()}
    if start is not None:
        methods["before"] = start.to(device).eval()
    methods["elvis"] = trained.head.to(device)
    pace = Pace("measuring on held-out objects", len(methods) * len(asked), on_progress)
    return {
        name: average_precisions(asked, model, config, device=device, on_query=pace.step)
        for name, model in methods.items()
    }


def _save(fitted: Fitted, source: str, config: TrainConfig, extraction: Mapping[str, Any]) -> None:
    """Writes the head beside the run, then puts its files in their place one by one, the weights first."""
    trained, out = fitted.trained, fitted.head
    facts = fitted.to_dict()
    card = {
        "trained_on": source,
        "elvis": elvis.__version__,
        "settings": config.to_dict(),
        **{name: facts[name] for name in ("pictures", "objects", "queries", "map", "gain", "best_step", "validations")},
    }
    head = trained.head.cpu()
    whole = Elvis(replace(head.config, extraction=dict(extraction), card=card))
    whole.load_state_dict(head.state_dict())
    trained.head.config = whole.config
    new = out / RUN_FOLDER / "head"
    try:
        whole.save_pretrained(new)
        for name in ("model.safetensors", "README.md", "config.json"):
            if (new / name).exists():
                os.replace(new / name, out / name)
        shutil.rmtree(new)
        (out / RUN_FOLDER / "report.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise TrainingError(
            f"{shown(out)} cannot be written ({error.strerror}): make room, then run again with --resume"
        ) from error
