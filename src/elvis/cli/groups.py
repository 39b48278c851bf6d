"""`elvis groups`: all pictures of the same thing, put together."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elvis.cli.options import Device, Head, IndexFolder

if TYPE_CHECKING:
    from elvis.groups import Member


def groups(
    index: IndexFolder,
    out: Annotated[
        Path | None, typer.Option(help="File to write: .json, .csv or .html (a contact sheet). Default: a list.")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="Mean vote, in both directions, from which two pictures belong together.")
    ] = None,
    neighbours: Annotated[int, typer.Option(min=1, help="Nearest by global vector looked at for each picture.")] = 20,
    method: Annotated[str | None, typer.Option(help="elvis, chamfer or chamfer-ot.", show_default=False)] = None,
    head: Head = None,
    journal: Annotated[
        Path | None, typer.Option(help="Keeps what is verified, to go on after a stop. Default: INDEX.groups.jsonl")
    ] = None,
    device: Device = "cpu",
) -> None:
    """Put together all pictures of the same thing in an index; look-alikes stay apart.

    A run that was stopped goes on where it was; another threshold on the same index needs no new verification.
    """
    from elvis.groups import DEFAULT_THRESHOLDS, find_groups
    from elvis.ranking import IndexRanking
    from elvis.store import Index

    if out is not None and out.suffix not in WRITERS:
        raise ValueError(f"out: expected a file that ends in {', '.join(WRITERS)}, got {out}")
    with Index.open(index) as opened:
        ranking = IndexRanking(opened, method, head, device=device)
        if threshold is None:
            if ranking.method not in DEFAULT_THRESHOLDS:
                raise ValueError(f"threshold: {ranking.method} has no default, give one with --threshold")
            threshold = DEFAULT_THRESHOLDS[ranking.method]
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True)) as bar:
            task = bar.add_task("verifying", total=len(opened))
            found = find_groups(
                opened,
                ranking,
                threshold=threshold,
                neighbours=neighbours,
                journal=journal or index.with_name(index.name + ".groups.jsonl"),
                on_progress=lambda done, total: bar.update(task, completed=done, total=total),
            )
    together = sum(map(len, found))
    sys.stderr.write(f"{len(found)} groups of {together} pictures, threshold {threshold:g}\n")
    if out is None:
        _write_list(found)
    else:
        WRITERS[out.suffix](found, out)


def _write_list(found: Sequence[Sequence[Member]]) -> None:
    from elvis.image_files import shown

    for number, group in enumerate(found, 1):
        sys.stdout.write(f"group {number}: {len(group)} pictures\n")
        for member in group:
            sys.stdout.write(f"  {member.strength:.3f} {shown(member.path)}\n")


def _write_json(found: Sequence[Sequence[Member]], out: Path) -> None:
    content = [
        {"group": number, "pictures": [{"path": member.path, "strength": member.strength} for member in group]}
        for number, group in enumerate(found, 1)
    ]
    out.write_text(json.dumps(content, indent=1) + "\n")


def _write_csv(found: Sequence[Sequence[Member]], out: Path) -> None:
    with out.open("w", newline="", encoding="utf-8", errors="surrogateescape") as stream:
        writer = csv.writer(stream)
        writer.writerow(["group", "path", "strength"])
        for number, group in enumerate(found, 1):
            writer.writerows([number, member.path, f"{member.strength:.6f}"] for member in group)


def _write_html(found: Sequence[Sequence[Member]], out: Path) -> None:
    from elvis.visualise.group_page import write_group_page

    write_group_page([[member.path for member in group] for group in found], out)


WRITERS = {".json": _write_json, ".csv": _write_csv, ".html": _write_html}
