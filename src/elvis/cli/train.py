"""`elvis train`: a head, or a detector, from a person's own pictures."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elvis.cli.options import AsJson, Device

if TYPE_CHECKING:
    from elvis.evaluation.progress import OnProgress
    from elvis.training.config import TrainConfig
    from elvis.training.fit import Fitted
    from elvis.training.loop import StepReport

LISTED = 20
"""Files left out that are named on a terminal; `--json` names all."""


def train(
    photos: Annotated[
        Path,
        typer.Argument(
            help="A folder with one folder an object, a CSV file (path,label), a folder with an images.csv (rows with "
            "role train), or published training files.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the head (with --detector: file for it).", show_default=False)],
    preset: Annotated[
        str | None,
        typer.Option(help="small, published or fine-tune. Default: small; fine-tune with --head."),
    ] = None,
    config: Annotated[Path | None, typer.Option(metavar="TOML", help="Settings that differ from the preset.")] = None,
    head: Annotated[str | None, typer.Option(help="Head to train further: a folder, or owner/name.")] = None,
    self_supervised: Annotated[
        bool, typer.Option("--self-supervised", help="Learn without labels, from augmented views.")
    ] = False,
    detector: Annotated[
        bool, typer.Option("--detector", help="Train what chooses the descriptors instead of a head.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the training that --out holds.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Train anew where --out holds a head.")] = False,
    steps: Annotated[int | None, typer.Option(min=1, help="Optimiser steps.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the anchors, instead of steps.")] = None,
    triplets: Annotated[int | None, typer.Option(min=1, help="Anchors a step.")] = None,
    views: Annotated[int | None, typer.Option(min=0, help="Augmented views of each picture.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate.")] = None,
    holdout: Annotated[float | None, typer.Option(help="Share of objects held out to measure with; 0: none.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of everything that is drawn.")] = None,
    backbone: Annotated[str | None, typer.Option(help="Name, folder, or owner/name on the hub.")] = None,
    size: Annotated[int | None, typer.Option(min=1, help="Longer side of the resized picture in pixels.")] = None,
    descriptors: Annotated[int | None, typer.Option(min=1, help="Descriptors kept a picture at most.")] = None,
    block: Annotated[int | None, typer.Option(help="Block of the backbone, from the end: -1 is the last.")] = None,
    selection: Annotated[str | None, typer.Option(help="both-cues, or a detector file.")] = None,
    precision: Annotated[str | None, typer.Option(help="fp32, or bf16: mixed precision.")] = None,
    cache: Annotated[Path | None, typer.Option(help="Folder for descriptors; default: the user's cache.")] = None,
    tensorboard: Annotated[
        bool | None, typer.Option("--tensorboard/--no-tensorboard", help="Default: where it is installed.")
    ] = None,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Train on your own pictures, and hear what it brought on objects that were held out.

    Descriptors are extracted once and kept. A run that was stopped goes on, exactly as if it had not been, with
    `elvis train PHOTOS --out HEAD --resume`. Several processes: `torchrun --nproc-per-node 2 -m elvis train …`.
    """
    logging.getLogger("elvis.training").setLevel(logging.INFO)
    given = {
        "steps": steps,
        "epochs": epochs,
        "triplets": triplets,
        "views": views,
        "lr": lr,
        "holdout": holdout,
        "seed": seed,
        "precision": precision,
    }
    extraction = {
        "backbone": backbone,
        "longer_side": size,
        "descriptors": descriptors,
        "block": block,
        "selection": selection,
    }
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if chosen := {name: value for name, value in extraction.items() if value is not None}:
        changes["extraction"] = chosen
    if detector:
        if resume or self_supervised or head or preset or config:
            raise ValueError(
                "a detector is trained in one go from labelled pictures: leave --resume, --self-supervised, --head, "
                "--preset and --config out"
            )
        _train_detector(photos, out, changes, overwrite, cache, device, as_json)
        return
    from elvis.training.fit import fit, load_head, recipe_for
    from elvis.training.run_folder import saved_run

    if resume:
        before = saved_run(out)
        recipe, head, self_supervised = before.config.changed(changes), before.start, before.self_supervised
    else:
        recipe = _recipe(photos, preset, config, head, changes)
        if head is not None:
            recipe = recipe_for(load_head(head), recipe)
    with _bars(as_json) as (on_progress, on_step):
        fitted = fit(
            photos,
            out,
            recipe,
            start=head,
            self_supervised=self_supervised,
            resume=resume,
            overwrite=overwrite,
            cache=cache,
            tensorboard=tensorboard,
            device=device,
            on_progress=on_progress,
            on_step=on_step,
        )
    if _is_first_process():
        _show(fitted, photos, self_supervised, as_json)


def _recipe(
    photos: Path, preset_name: str | None, file: Path | None, head: str | None, changes: dict[str, Any]
) -> TrainConfig:
    from elvis.importing.research import is_research_folder
    from elvis.training.config import preset, read_config

    if preset_name is None:
        preset_name = (
            "fine-tune" if head else "published" if photos.is_dir() and is_research_folder(photos) else "small"
        )
    recipe = preset(preset_name)
    if file is not None:
        recipe = read_config(file, recipe)
    return recipe.changed(changes)


def _is_first_process() -> bool:
    import os

    return os.environ.get("RANK", "0") == "0"


def _show(fitted: Fitted, photos: Path, self_supervised: bool, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(fitted.to_dict()) + "\n")
        return
    from elvis.image_files import shown

    say: Callable[[str], Any] = typer.echo
    of = f" of {fitted.objects:,} objects" if fitted.objects else ""
    say(f"{fitted.pictures:,} pictures{of}, {fitted.seconds / 60:.1f} minutes")
    for note in fitted.notes:
        say(f"note: {note}")
    for each in fitted.skipped[:LISTED]:
        say(f"  left out {shown(each.path)}: {each.reason}")
    if len(fitted.skipped) > LISTED:
        say(f"  … and {len(fitted.skipped) - LISTED} more: --json lists all")
    if fitted.trained.stuck:
        say(f"warning: {fitted.trained.stuck}")
    use = f"elvis index {photos} --index NEW --head {fitted.head}"
    best = fitted.best_hand_made
    if best is None:
        say("nothing was held out, so nothing is known of what it brought; the last head was kept")
        say(f"use it:  {use}")
        return
    queries = len(fitted.precisions["elvis"])
    what = "augmented views of held-out pictures" if self_supervised else "pictures of held-out objects"
    say(f"\nmAP@100 of {queries} queries ({what}) among all pictures, 95 % interval of the difference:")
    rows = [("global", "global vector alone"), (best, "best without training")]
    rows += [("before", "head before")] if "before" in fitted.precisions else []
    for name, words in rows:
        gain = fitted.gain_over(name)
        say(
            f"  {100 * fitted.precisions[name].mean():6.1f}  {words} ({name}); new head {100 * gain.value:+.1f} "
            f"[{100 * gain.low:+.1f}, {100 * gain.high:+.1f}]"
        )
    say(f"  {100 * fitted.precisions['elvis'].mean():6.1f}  new head (best after step {fitted.trained.step})")
    if fitted.trained.step == 0:
        say("\nNo step made it better than it was at its start: train longer, lower --lr, or add pictures.")
    if fitted.gain_over(best).value <= 0:
        say(f"\nOn these the head is no better than {best}, which needs no training: index without --head, or train on")
        say("more pictures. To use the head all the same:")
    say(f"\n{use}")


def _train_detector(
    photos: Path,
    out: Path,
    changes: dict[str, Any],
    overwrite: bool,
    cache: Path | None,
    device: str,
    as_json: bool,
) -> None:
    from elvis.training.detector import DetectorConfig, fit_detector

    extraction = changes.pop("extraction", {})
    recipe = DetectorConfig().changed({**changes, "extraction": extraction})
    with _bars(as_json) as (on_progress, on_step):
        fitted = fit_detector(
            photos,
            out,
            recipe,
            overwrite=overwrite,
            cache=cache,
            device=device,
            on_progress=on_progress,
            on_step=on_step,
        )
    if as_json:
        sys.stdout.write(json.dumps(fitted.to_dict()) + "\n")
        return
    for note in fitted.notes:
        typer.echo(f"note: {note}")
    typer.echo(f"mAP@100 of chamfer-ot on {fitted.queries} pictures of held-out objects, by what chooses descriptors:")
    typer.echo(f"  {100 * fitted.before:6.1f}  both-cues, without training")
    typer.echo(f"  {100 * fitted.after:6.1f}  the new detector")
    typer.echo(f"\nelvis index {photos} --index NEW --selection {fitted.file}")


@contextmanager
def _bars(hidden: bool) -> Generator[tuple[OnProgress, Callable[[StepReport], None]]]:
    """A bar a stage on stderr; where stderr is no terminal, a line a minute."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if hidden or not _is_first_process():
        yield (lambda progress: None), (lambda report: None)
        return
    if not console.is_terminal:
        yield _lines()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[said]}"),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        tasks: dict[str, Any] = {}

        def show(stage: str, done: int, total: int, said: str) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total, said="")
            bars.update(tasks[stage], completed=done, total=total, said=said)

        yield (
            (lambda progress: show(progress.stage, progress.done, progress.total, _left(progress.seconds_left))),
            (lambda report: show("training", report.step, report.steps, _said(report))),
        )


def _lines() -> tuple[OnProgress, Callable[[StepReport], None]]:
    told: dict[str, float] = {}

    def show(stage: str, done: int, total: int, said: str) -> None:
        now = time.monotonic()
        if done == total or now - told.get(stage, -60.0) >= 60:
            told[stage] = now
            typer.echo(", ".join(filter(None, (f"{stage}: {done:,} of {total:,}", said))), err=True)

    return (
        (lambda progress: show(progress.stage, progress.done, progress.total, _left(progress.seconds_left))),
        (lambda report: show("training", report.step, report.steps, _said(report))),
    )


def _said(report: StepReport) -> str:
    best = "" if report.best_map is None else f"best mAP {100 * report.best_map:.1f}"
    return ", ".join(filter(None, (f"loss {report.loss:.3f}", best, _left(report.seconds_left))))


def _left(seconds: float | None) -> str:
    if not seconds:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s left" if minutes else f"{rest} s left"
