"""Tables rendered from results, never typed: Markdown, LaTeX, HTML."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from elvis.evaluation.bootstrap import Difference, paired_difference
from elvis.evaluation.results import Result

Format = Literal["markdown", "latex", "html"]
AVERAGE = "average"


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell's text, and whether it is the best of its column."""

    text: str
    best: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A heading, rows of cells, and what one must know to read them."""

    heading: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()

    def render(self, form: Format = "markdown") -> str:
        """The table as text.

        Example:
            >>> print(Table(("method", "toys"), ((Cell("global"), Cell("57.1", best=True)),)).render())
            | method | toys |
            | --- | ---: |
            | global | **57.1** |
        """
        return RENDERERS[form](self)


def main_table(results: Sequence[Result], *, baseline: str | None = None, seed: int = 0) -> Table:
    """A row a method, a column a data set (splits after their whole), and the average; mAP in percent.

    Beside every figure stands the difference to the baseline with its 95 % paired bootstrap interval over queries.

    Args:
        results: of one run; a method that lacks a data set has no average.
        baseline: a method's name; left out: the hand-made method with the best average, or else the first.
        seed: of the bootstrap.
    """
    by_identity = {result.identity: result for result in results}
    methods = list(dict.fromkeys(result.method for result in results))
    columns = sorted({result.identity[:3]: None for result in results}, key=lambda c: _order(results, c))
    whole = [column for column in columns if not column[2]]
    baseline = baseline if baseline is not None else _best_hand_made(results, methods, whole)
    if baseline not in methods:
        raise ValueError(f"baseline: expected one of {', '.join(methods)}, got {baseline!r}")

    def of(method: str, wanted: Sequence[tuple[str, str, str]]) -> list[Result] | None:
        found = [by_identity.get((*column, method)) for column in wanted]
        return [each for each in found if each is not None] if all(found) else None

    groups = [[column] for column in columns] + ([whole] if len(whole) > 1 else [])
    rows: list[list[Cell]] = [[Cell(method)] for method in methods]
    for group in groups:
        values = [of(method, group) for method in methods]
        means = [_average(each) if each else None for each in values]
        best = max(round(mean, 1) for mean in means if mean is not None) if any(values) else None
        against = of(baseline, group)
        for row, method, each, mean in zip(rows, methods, values, means, strict=True):
            if each is None or mean is None:
                row.append(Cell("–"))
                continue
            text = f"{mean:.1f}"
            if method != baseline and against:
                text += f" ({_difference(against, each, seed)})"
            row.append(Cell(text, round(mean, 1) == best))
    heading = ["method", *(_column_name(column) for column in columns)]
    heading += [AVERAGE] if len(whole) > 1 else []
    metric = " / ".join(dict.fromkeys(result.metric for result in results))
    notes = [f"{metric} in percent."]
    if len(methods) > 1:
        notes.append(f"In brackets: difference to {baseline} with its 95 % paired bootstrap interval over queries.")
    return Table(tuple(heading), tuple(map(tuple, rows)), tuple(notes))


def dataset_table(results: Sequence[Result]) -> Table:
    """A row a data set: sizes, what is missing, the metric, and how much re-ranking could find at its depth."""
    rows: dict[tuple[str, str, str], tuple[Cell, ...]] = {}
    for result in results:
        details = result.details
        texts = (
            _column_name(result.identity[:3]),
            f"{int((~np.isnan(result.ap)).sum()):,} of {len(result.ap):,}"
            if not result.split
            else f"{int((~np.isnan(result.ap)).sum()):,}",
            f"{int(details.get('gallery', 0)):,}",
            f"{int(details.get('missing', 0)):,}",
            result.metric,
            f"{100 * float(np.nanmean(result.recall)):.1f} at {details.get('depth', '–')}",
        )
        rows.setdefault(result.identity[:3], tuple(map(Cell, texts)))
    heading = ("data set", "queries that count", "gallery", "missing", "metric", "first-stage recall")
    return Table(heading, tuple(rows.values()))


def _order(results: Sequence[Result], column: tuple[str, str, str]) -> tuple[int, int, int]:
    """As first met, with every split right after its whole."""
    datasets = list(dict.fromkeys(result.dataset for result in results))
    judgements = list(dict.fromkeys(result.judgement for result in results))
    splits = ["", *dict.fromkeys(result.split for result in results if result.split)]
    return datasets.index(column[0]), judgements.index(column[1]), splits.index(column[2])


def _best_hand_made(results: Sequence[Result], methods: Sequence[str], whole: Sequence[tuple[str, str, str]]) -> str:
    averages: dict[str, float] = {}
    for method in methods:
        mine = [each for each in results if each.method == method and each.hand_made and each.identity[:3] in whole]
        if mine and len(mine) == len(whole):
            averages[method] = _average(mine)
    return max(averages, key=averages.__getitem__) if averages else methods[0]


def _average(results: Sequence[Result]) -> float:
    """Over data sets; one that is judged in several ways counts once."""
    by_dataset: dict[str, list[float]] = {}
    for result in results:
        by_dataset.setdefault(result.dataset, []).append(result.map)
    return float(np.mean([np.mean(values) for values in by_dataset.values()]))


def _difference(against: Sequence[Result], results: Sequence[Result], seed: int) -> str:
    pairs: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for a, b in zip(against, results, strict=True):
        pairs.setdefault(a.dataset, []).append((a.ap, b.ap))
    try:
        # One data set judged in several ways: resampled is the mean of those ways, of queries that count in all.
        groups = [
            (np.mean([a for a, _ in each], axis=0), np.mean([b for _, b in each], axis=0)) for each in pairs.values()
        ]
        found = paired_difference(groups, seed=seed)
    except ValueError:
        return "other queries"
    scaled = Difference(100 * found.value, 100 * found.low, 100 * found.high)
    return f"{scaled.value:+.1f} [{scaled.low:+.1f}, {scaled.high:+.1f}]"


def _column_name(column: tuple[str, str, str]) -> str:
    dataset, judgement, split = column
    return " ".join(filter(None, (dataset, judgement))) + (f": {split}" if split else "")


def _markdown(table: Table) -> str:
    def line(texts: Sequence[str]) -> str:
        return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"

    body = [line([f"**{cell.text}**" if cell.best else cell.text for cell in row]) for row in table.rows]
    rule = "| --- |" + " ---: |" * (len(table.heading) - 1)
    return "\n".join([line(table.heading), rule, *body, *([""] if table.notes else []), *table.notes])


def _latex(table: Table) -> str:
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--"}
    special |= {character: "\\" + character for character in "&%$#_{}"}

    def escaped(text: str) -> str:
        return "".join(special.get(character, character) for character in text)

    def line(texts: Sequence[str]) -> str:
        return " & ".join(texts) + r" \\"

    body = [
        line([rf"\textbf{{{escaped(cell.text)}}}" if cell.best else escaped(cell.text) for cell in row])
        for row in table.rows
    ]
    start = rf"\begin{{tabular}}{{l{'r' * (len(table.heading) - 1)}}}"
    head = line([escaped(text) for text in table.heading])
    notes = [f"% {note}" for note in table.notes]
    return "\n".join([*notes, start, r"\toprule", head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}"])


def _html(table: Table) -> str:
    def line(tag: str, texts: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{text}</{tag}>" for text in texts) + "</tr>"

    body = [
        line("td", [f"<b>{html.escape(cell.text)}</b>" if cell.best else html.escape(cell.text) for cell in row])
        for row in table.rows
    ]
    notes = [f"<p>{html.escape(note)}</p>" for note in table.notes]
    head = line("th", [html.escape(text) for text in table.heading])
    return "\n".join(["<table>", f"<thead>{head}</thead>", "<tbody>", *body, "</tbody>", "</table>", *notes])


RENDERERS: dict[Format, Callable[[Table], str]] = {"markdown": _markdown, "latex": _latex, "html": _html}
"""How a table becomes text, by the name of the format."""
SUFFIXES: dict[Format, str] = {"markdown": "md", "latex": "tex", "html": "html"}
"""Of a file in each format."""
