"""`elvis index`: pictures into an index, new ones, changed ones, and on request without those that vanished."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elvis.cli.options import AsJson, Device, Head, IndexFolder
from elvis.cli.progress import progress_bar, show_estimate, show_report

if TYPE_CHECKING:
    from elvis.extract import ExtractionSettings
    from elvis.store import IndexCard


def index(
    pictures: Annotated[list[Path], typer.Argument(help="Pictures, or folders of them.", show_default=False)],
    folder: IndexFolder,
    preset: Annotated[
        str | None, typer.Option(help="fast, balanced or accurate; for a new index. Default: balanced.")
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help="Name (see `elvis weights list`), folder, or owner/name on the hub.")
    ] = None,
    size: Annotated[int | None, typer.Option(help="Longer side of the resized picture in pixels.")] = None,
    descriptors: Annotated[int | None, typer.Option(help="Descriptors kept a picture at most.")] = None,
    block: Annotated[int | None, typer.Option(help="Block of the backbone, from the end: -1 is the last.")] = None,
    selection: Annotated[str | None, typer.Option(help="both-cues, or a detector file.")] = None,
    precision: Annotated[str | None, typer.Option(help="auto, bf16, fp16 or fp32.")] = None,
    method: Annotated[
        str | None, typer.Option(help="Method that the descriptors are prepared for: chamfer-ot, chamfer or elvis.")
    ] = None,
    head: Head = None,
    keep_raw: Annotated[
        bool, typer.Option("--keep-raw", help="Keep raw descriptors too: any method or head works later.")
    ] = False,
    metadata: Annotated[
        Path | None, typer.Option(metavar="CSV", help="Columns to keep beside the pictures; the first is `path`.")
    ] = None,
    prune: Annotated[bool, typer.Option("--prune", help="Take out pictures that vanished from the folders.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many bytes and hours it will take.")] = False,
    batch: Annotated[int | None, typer.Option(min=1, help="Pictures computed together on a GPU.")] = None,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Put pictures into an index; run it again at any time to bring the index up to date.

    What is there is skipped, changed files are read again, and every file that could not be indexed is listed with its
    reason. A run that was stopped, by Ctrl-C or by a crash, is continued by the same command. Settings of an existing
    index are taken from it; asking for others ends with code 6.
    """
    from elvis.errors import StoreError
    from elvis.extract import Extractor
    from elvis.indexing import add_pictures, card_for, estimate
    from elvis.ranking import DEFAULT_METHOD, ranking_model, remember_head
    from elvis.store import Index
    from elvis.store.metadata import read_metadata

    asked = {
        "backbone": backbone,
        "longer_side": size,
        "descriptors": descriptors,
        "block": block,
        "selection": selection,
        "precision": precision,
    }
    table = read_metadata(metadata) if metadata is not None else None
    before = _card_of(folder)
    if before is not None and preset is not None:
        raise ValueError(f"preset: {folder} exists and keeps its settings: leave --preset out, or name a new folder")
    settings = _settings(before, preset, {name: value for name, value in asked.items() if value is not None})
    method = method or (before.model if before else "elvis" if head else DEFAULT_METHOD)
    recorded_head = before.model_settings.get("head") if before else None
    model = ranking_model(
        method,
        head or recorded_head,
        standardise=bool(before.model_settings.get("standardise", True)) if before else True,
    )
    extractor = Extractor(settings, device=device, batch_size=batch)
    card = remember_head(card_for(extractor, model, keep_raw=keep_raw or bool(before and before.keep_raw)), head)
    if dry_run:
        if before is None:
            found = estimate(None, pictures, extractor, model, keep_raw=card.keep_raw)
        else:
            with Index.open(folder) as opened:
                found = estimate(opened, pictures, extractor, model)
        show_estimate(found, as_json)
        return
    if before is not None and keep_raw and not before.keep_raw:
        raise StoreError(f"{folder} was made without --keep-raw: index the pictures into a new folder")
    with Index.open(folder, writable=True) if before else Index.create(folder, card) as opened:
        with progress_bar(as_json) as on_progress:
            report = add_pictures(
                opened, pictures, extractor, model, prune=prune, metadata=table, on_progress=on_progress
            )
        count = len(opened)
    show_report(report, folder, count, as_json)


def _card_of(folder: Path) -> IndexCard | None:
    """The card of an index that is there already."""
    from elvis.errors import IndexMissing
    from elvis.store import Index

    try:
        with Index.open(folder) as opened:
            return opened.card
    except IndexMissing:
        return None


def _settings(before: IndexCard | None, preset: str | None, asked: dict[str, Any]) -> ExtractionSettings:
    """Those of the index or the preset, with what was asked for by name."""
    from elvis.errors import UnknownName
    from elvis.extract import DEFAULT_PRESET, PRESETS, ExtractionSettings

    if before is not None:
        return replace(ExtractionSettings.from_dict(before.extraction), **asked)
    name = preset or DEFAULT_PRESET
    if name not in PRESETS:
        raise UnknownName("preset", name, PRESETS)
    return replace(PRESETS[name], **asked)
