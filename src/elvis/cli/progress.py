"""What `elvis index` shows while it works and when it is done."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elvis.image_files import Skipped
    from elvis.indexing import Estimate, Progress, Report

LISTED = 20
"""Skipped files that are named on a terminal; `--json` names all."""


@contextmanager
def progress_bar(hidden: bool) -> Generator[Callable[[Progress], None] | None]:
    """A bar on stderr with rate, what is safely stored, and time left."""
    if hidden:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("indexing"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[stored]} stored"),
    )
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=None, rate="", stored=0)

        def on_progress(state: Progress) -> None:
            rate = f"{state.done / state.seconds:.1f}/s" if state.seconds > 0 else ""
            bar.update(task, completed=state.done, total=state.total, rate=rate, stored=state.committed)

        yield on_progress


def show_report(report: Report, folder: Path, count: int, as_json: bool) -> None:
    """What was done, and every file that was left out with its reason."""
    if as_json:
        skipped = [{"path": str(each.path), "reason": each.reason} for each in report.skipped]
        facts = {**asdict(report), "skipped": skipped, "index": str(folder), "pictures": count}
        sys.stdout.write(json.dumps(facts) + "\n")
        return
    sys.stdout.write(
        f"{report.added} added, {report.updated} updated, {report.unchanged} unchanged, {report.removed} removed, "
        f"{len(report.skipped)} skipped in {_duration(report.seconds)}; {folder} holds {count} pictures\n"
    )
    _show_skipped(report.skipped)
    for path in report.unmatched[:LISTED]:
        sys.stdout.write(f"  metadata for a picture that is not in the index: {path}\n")
    if len(report.unmatched) > LISTED:
        sys.stdout.write(f"  … and {len(report.unmatched) - LISTED} more\n")


def show_estimate(found: Estimate, as_json: bool) -> None:
    """What indexing would take."""
    if as_json:
        skipped = [{"path": str(each.path), "reason": each.reason} for each in found.skipped]
        sys.stdout.write(json.dumps({**asdict(found), "skipped": skipped}) + "\n")
        return
    sys.stdout.write(
        f"{found.pictures} pictures to index, {found.unchanged} there already: about {_bytes(found.bytes)} on disk and "
        f"{_duration(found.hours * 3600)} ({found.hours:.2f} hours), judging by {found.sampled} of them\n"
    )
    _show_skipped(found.skipped)


def _show_skipped(skipped: Sequence[Skipped]) -> None:
    from elvis.image_files import shown

    for each in skipped[:LISTED]:
        sys.stdout.write(f"  skipped {shown(each.path)}: {each.reason}\n")
    if len(skipped) > LISTED:
        sys.stdout.write(f"  … and {len(skipped) - LISTED} more: elvis index --json lists all\n")


def _bytes(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError  # the loop always ends in a return


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.1f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
