"""`elvis info`, `verify` and `remove`: look after an index."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from elvis.cli.options import AsJson, IndexFolder


def info(index: IndexFolder, as_json: AsJson = False) -> None:
    """Say what an index holds and how it was made."""
    from elvis.store import Index

    with Index.open(index) as opened:
        facts = opened.info()
    if as_json:
        sys.stdout.write(json.dumps(facts) + "\n")
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(show_header=False, box=None)
    for name, value in facts.items():
        for line, (inner, content) in enumerate(value.items() if isinstance(value, dict) else [("", value)]):
            table.add_row(name if line == 0 else "", str(inner), str(content))
    Console().print(table)


def verify(
    index: IndexFolder,
    repair: Annotated[
        bool, typer.Option("--repair", help="Drop what is damaged, so that indexing the pictures again brings it back.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Read every file and record of an index and check their sums. Ends with code 8 when something is damaged."""
    from elvis.errors import IndexDamaged
    from elvis.store import Index

    with Index.open(index, writable=repair) as opened:
        report = opened.repair() if repair else opened.verify()
    if as_json:
        sys.stdout.write(json.dumps({"sound": report.sound, **asdict(report)}) + "\n")
    else:
        trouble = [f"commit {number} is lost: {reason}" for number, reason in report.lost.items()]
        trouble += [f"{name}: {reason}" for name, reason in report.files.items()]
        trouble += list(report.damaged.values())
        sys.stdout.write(f"{report.records} pictures, {'all sound' if report.sound else 'damaged:'}\n")
        for line in trouble:
            sys.stdout.write(f"  {line}\n")
        if report.damaged and repair:
            sys.stdout.write("damaged records were dropped: run elvis index on the pictures again\n")
    if not report.sound and not repair:
        raise typer.Exit(IndexDamaged.exit_code)


def remove(
    pictures: Annotated[list[str], typer.Argument(help="Paths as they were indexed.", show_default=False)],
    index: IndexFolder,
) -> None:
    """Take pictures out of an index; the files themselves stay."""
    from elvis.errors import StoreError
    from elvis.store import Index

    with Index.open(index, writable=True) as opened:
        removed = opened.remove(pictures)
        left = len(opened)
    sys.stdout.write(f"{removed} removed, {left} left in {index}\n")
    if missing := len(set(pictures)) - removed:
        raise StoreError(f"{missing} of the pictures are not in {index}: give paths as `elvis search` prints them")
