"""`make demo`: the README's first command. Indexes the pictures that ship with the project and searches them.

Prints what the global vector alone finds beside what re-ranking makes of it, and leaves one explanation picture.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from elvis import Searcher, SearchResult
from elvis.building import Builder
from elvis.comparison import Comparison
from elvis.images import open_image
from elvis.indexing import add_pictures
from elvis.visualise import contact_sheet, save

DEMO = Path(__file__).parents[1] / "demo"
TOP = 5


def main(out: Path) -> None:
    """Runs the demo and writes to `out`."""
    console = Console(width=None if sys.stdout.isatty() else 110)
    right = truth()
    builder = Builder.of(out / "pictures.index")
    console.print(f"\n[bold]elvis index demo/pictures --index {out / 'pictures.index'}[/bold]")
    with builder.open() as index:
        with Progress(console=console) as bar:
            task = bar.add_task("indexing")
            report = add_pictures(
                index,
                [DEMO / "pictures"],
                builder.extractor,
                builder.model,
                on_progress=lambda state: bar.update(task, completed=state.done, total=state.total),
            )
        console.print(f"{report.added} added, {report.unchanged} there already, in {report.seconds:.0f} s")
        plain = Searcher(index, method="global", extractor=builder.extractor)
        ranked = Searcher(index, extractor=builder.extractor)
        for query in sorted((DEMO / "queries").iterdir()):
            console.print(f"\n[bold]elvis search demo/queries/{query.name} --index {out / 'pictures.index'}[/bold]")
            before, after = plain.search(query, top=TOP), ranked.search(query, top=TOP)
            console.print(side_by_side(before, after, right[query.name]))
            pictures = [open_image(hit.path) for hit in after]
            sheet = contact_sheet(open_image(query), after.hits, pictures, headline=f"ranked by {after.method}")
            save(sheet, out / f"found-{query.stem}.png")
        best = ranked.search(query := DEMO / "queries" / "cookies.jpg", top=1)[0]
        explanation = ranked.explain(query, best.path)
        compared = Comparison.from_explanation(explanation, open_image(query), open_image(best.path), ranked.method)
        save(compared.sheet(), out / "explanation.png")
    console.print(f"\nwhat was found: {out}/found-*.png   why: {out}/explanation.png\n")


def truth() -> dict[str, set[str]]:
    """Query → the pictures that show the same thing."""
    right: dict[str, set[str]] = {}
    with (DEMO / "truth.csv").open() as stream:
        for row in csv.DictReader(stream):
            right.setdefault(Path(row["query"]).name, set()).add(Path(row["path"]).name)
    return right


def side_by_side(before: SearchResult, after: SearchResult, right: set[str]) -> Table:
    """Both rankings; a tick stands where the picture does show the same thing."""
    table = Table(header_style="bold")
    table.add_column("", justify="right")
    table.add_column("before: global vector")
    table.add_column(f"after: {after.method}")
    table.add_column("score", justify="right")
    for one, other in zip(before, after, strict=True):
        names = [Path(hit.path).name for hit in (one, other)]
        marked = [f"[green]✓ {name}[/green]" if name in right else f"  {name}" for name in names]
        table.add_row(str(one.rank), *marked, f"{other.score:.1f}")
    return table


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo-out"))
