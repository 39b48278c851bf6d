"""`elvis index`: pictures into an index, new ones, changed ones, and on request without those that vanished."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elvis.cli.options import AsJson, Device, Head, IndexFolder
from elvis.cli.progress import progress_bar, show_estimate, show_report


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
    store: Annotated[
        str | None,
        typer.Option(help="How descriptors are stored: float16, or int8 in half the space. Default: float16."),
    ] = None,
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
    from elvis.building import Builder
    from elvis.indexing import add_pictures, estimate
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
    builder = Builder.of(
        folder,
        preset=preset,
        settings={name: value for name, value in asked.items() if value is not None},
        method=method,
        head=head,
        keep_raw=keep_raw,
        store=store,
        device=device,
        batch_size=batch,
    )
    if dry_run:
        opened = Index.open(folder) if builder.exists else None
        show_estimate(
            estimate(opened, pictures, builder.extractor, builder.model, keep_raw=keep_raw, store=store or "float16"),
            as_json,
        )
        return
    with builder.open() as opened:
        with progress_bar(as_json) as on_progress:
            report = add_pictures(
                opened,
                pictures,
                builder.extractor,
                builder.model,
                prune=prune,
                metadata=table,
                on_progress=on_progress,
            )
        count = len(opened)
    show_report(report, folder, count, as_json)
