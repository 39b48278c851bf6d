"""`elvis search`: which pictures of an index show the same thing."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elvis.cli.options import AsJson, Device, Head, IndexFolder, read_crop

if TYPE_CHECKING:
    from elvis.search import Searcher, SearchResult

UNREADABLE = 5
NOTHING_FOUND = 10


def search(
    pictures: Annotated[list[Path], typer.Argument(help="Query pictures, or folders of them.", show_default=False)],
    index: IndexFolder,
    top: Annotated[int, typer.Option(min=1, help="Hits to show.")] = 10,
    depth: Annotated[int, typer.Option(min=1, help="Nearest by global vector that the method re-ranks.")] = 400,
    crop: Annotated[
        str | None, typer.Option(help="The object in the query: x,y,w,h as fractions of the upright picture.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(help="elvis, chamfer, chamfer-ot or global; default: what the index was made for."),
    ] = None,
    head: Head = None,
    where: Annotated[
        str | None, typer.Option(help="Only pictures whose metadata fit, as \"museum = 'X' AND year < 1900\".")
    ] = None,
    together: Annotated[bool, typer.Option("--together", help="All queries show one object: one answer.")] = False,
    min_score: Annotated[float | None, typer.Option(help="Leave out hits below this score.")] = None,
    as_json: AsJson = False,
    explain: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Save a picture of each match, and why it matched.")
    ] = None,
    sheet: Annotated[
        Path | None, typer.Option(metavar="PNG", help="Save the hits as a contact sheet (a folder for many queries).")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print where the time went.")] = False,
    device: Device = "cpu",
) -> None:
    """Find the pictures of an index that show the same thing as the query.

    A folder as query asks for each of its pictures: which of these do I have already? Ends with code 10 when nothing
    was found for any query, and with 5 when a query could not be read (the others are answered all the same).
    """
    from elvis.cli.pictures import save_explanations, save_sheet, sheet_place
    from elvis.search import Searcher
    from elvis.store import Index

    area = read_crop(crop)
    with Index.open(index) as opened:
        searcher = Searcher(opened, method=method, head=head, depth=depth, device=device)
        queries, skipped = _queries(pictures)
        found = 0
        for query in [queries] if together else [[query] for query in queries]:
            name = " + ".join(map(str, query))
            result = _answer(searcher, query, skipped, top=top, crop=area, where=where, min_score=min_score)
            if result is None:
                continue
            found += len(result)
            _show(name, result, as_json=as_json)
            if verbose:
                _show_seconds(result, searcher.engine)
            if explain is not None:
                save_explanations(searcher, query, area, result, explain)
            if sheet is not None:
                save_sheet(query, result, sheet_place(sheet, query, together or len(queries) == 1))
    for path, reason in skipped:
        sys.stderr.write(f"elvis: query left out: {path}: {reason}\n")
    if skipped:
        raise typer.Exit(UNREADABLE)
    if not found:
        sys.stderr.write("elvis: nothing found\n")
        raise typer.Exit(NOTHING_FOUND)


def _queries(places: Sequence[Path]) -> tuple[list[Path], list[tuple[str, str]]]:
    from elvis.image_files import Skipped, find_images

    queries: list[Path] = []
    skipped: list[tuple[str, str]] = []
    for found in find_images(places):
        if isinstance(found, Skipped):
            skipped.append((str(found.path), found.reason))
        else:
            queries.append(found)
    return queries, skipped


def _answer(
    searcher: Searcher, query: list[Path], skipped: list[tuple[str, str]], **options: Any
) -> SearchResult | None:
    """The result, or None where a query cannot be read, which is noted."""
    from elvis.errors import UnreadableImage

    try:
        return searcher.search(query, **options)
    except UnreadableImage as error:
        skipped.append((" + ".join(map(str, query)), str(error)))
        return None


def _show(name: str, result: SearchResult, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(search_json(name, result)) + "\n")
        sys.stdout.flush()
    else:
        _print_table(name, result)


def _show_seconds(result: SearchResult, engine: str) -> None:
    parts = ", ".join(f"{stage} {1000 * spent:.0f} ms" for stage, spent in asdict(result.seconds).items())
    sys.stderr.write(f"{parts} (backbone by {engine}); {result.candidates} candidates\n")


def search_json(name: str, result: SearchResult) -> dict[str, Any]:
    """What `elvis search --json` writes for a query."""
    return {
        "query": name,
        "method": result.method,
        "hits": [asdict(hit) for hit in result.hits],
        "damaged": result.damaged,
        "seconds": asdict(result.seconds),
    }


def _print_table(name: str, result: SearchResult) -> None:
    from rich.console import Console
    from rich.table import Table

    from elvis.image_files import shown

    table = Table(title=f"{shown(name)} — ranked by {result.method}", title_justify="left", header_style="bold")
    for column, justify in (("rank", "right"), ("picture", "left"), ("score", "right"), ("before", "right")):
        table.add_column(column, justify=justify, overflow="fold")  # pyright: ignore[reportArgumentType]
    table.add_column("global", justify="right")
    table.add_column("box of the match", justify="left")
    for hit in result.hits:
        table.add_row(
            str(hit.rank),
            shown(hit.path),
            f"{hit.score:.3f}" if abs(hit.score) < 10 else f"{hit.score:.1f}",
            str(hit.rank_before),
            f"{hit.global_similarity:.3f}",
            "—" if hit.box is None else ",".join(f"{number:.2f}" for number in hit.box),
        )
    # A terminal gets its own width; a pipe gets whole lines rather than wrapped paths.
    width = None if sys.stdout.isatty() else 40 + max([20, *_lengths(result)])
    Console(width=width and width + 40).print(table)


def _lengths(result: SearchResult) -> Iterator[int]:
    return (len(hit.path) for hit in result.hits)
