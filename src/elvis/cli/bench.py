"""`elvis bench`: methods measured on data sets, as one command."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elvis.cli.options import Device

if TYPE_CHECKING:
    from elvis.evaluation.methods import Method
    from elvis.evaluation.progress import OnProgress, Progress
    from elvis.evaluation.results import Result
    from elvis.evaluation.run import Contender
    from elvis.evaluation.tables import Format


def bench(
    folders: Annotated[
        list[Path] | None, typer.Argument(help="Data sets: folders with an images.csv.", show_default=False)
    ] = None,
    methods: Annotated[
        str, typer.Option(help="Comma separated; --list names them. `elvis` takes part once for every --head.")
    ] = "global,chamfer,chamfer-ot",
    head: Annotated[
        list[str] | None, typer.Option(help="Weights of trained methods: a folder or hub name, or METHOD=PLACE.")
    ] = None,
    depth: Annotated[int, typer.Option(min=1, help="How many of the best by global vector are re-ranked.")] = 400,
    preset: Annotated[str | None, typer.Option(help="Extraction: fast, balanced or accurate.")] = None,
    backbone: Annotated[
        str | None, typer.Option(help="Name (see `elvis weights list`), folder, or owner/name on the hub.")
    ] = None,
    size: Annotated[int | None, typer.Option(min=1, help="Longer side of the resized picture in pixels.")] = None,
    descriptors: Annotated[int | None, typer.Option(min=1, help="Descriptors kept a picture at most.")] = None,
    block: Annotated[int | None, typer.Option(help="Block of the backbone, from the end: -1 is the last.")] = None,
    selection: Annotated[str | None, typer.Option(help="both-cues, or a detector file.")] = None,
    precision: Annotated[str | None, typer.Option(help="auto, bf16, fp16 or fp32.")] = None,
    device: Device = "cpu",
    out: Annotated[
        Path | None, typer.Option(help="Folder for results.jsonl and the tables; a killed run resumes from it.")
    ] = None,
    rankings: Annotated[Path | None, typer.Option(help="File for what every query found, as JSON lines.")] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Folder for extracted descriptors; left out: the user's cache folder.")
    ] = None,
    memory: Annotated[float, typer.Option(min=0, help="GiB of prepared descriptors in memory.")] = 2.0,
    split_by: Annotated[
        str | None, typer.Option(help="Regular expression on query paths: figures by what it finds, too.")
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(help="Method to compare with; left out: the best hand-made one.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the bootstrap intervals.")] = 0,
    table_format: Annotated[str, typer.Option("--format", help="markdown, latex or html.")] = "markdown",
    list_: Annotated[bool, typer.Option("--list", help="Name data sets and methods, and stop.")] = False,
) -> None:
    """Measure methods on data sets: mAP with the difference to the best hand-made method, and its interval.

    Descriptors are extracted once and kept; the options of the extraction, when left out, are those a head was
    trained with, or the product's. Every data set is checked before any work is done. Without data sets, the
    tables of the results in --out are printed.
    """
    from elvis.errors import UnknownName
    from elvis.evaluation.benchmark import EvaluationSettings
    from elvis.evaluation.cache import default_cache_folder
    from elvis.evaluation.datasets import load_benchmark
    from elvis.evaluation.methods import load_methods
    from elvis.evaluation.results import load_results
    from elvis.evaluation.run import run
    from elvis.evaluation.tables import RENDERERS

    if list_:
        _list()
        return
    if table_format not in RENDERERS:
        raise UnknownName("table format", table_format, RENDERERS)
    if not folders and out is not None and (out / "results.jsonl").exists():
        _show([*load_results(out)], table_format, baseline, seed, out)
        return
    benchmarks = [load_benchmark(folder) for folder in folders or []]
    if not benchmarks:
        raise ValueError("data sets: expected at least one folder with an images.csv, got none")
    for benchmark in benchmarks:
        typer.echo(benchmark.summary(), err=True)
    chosen = load_methods([name.strip() for name in methods.split(",")], head or [])
    if baseline is not None and baseline not in [method.label for method in chosen]:
        raise UnknownName("baseline", baseline, [method.label for method in chosen])
    asked = {
        "backbone": backbone,
        "block": block,
        "longer_side": size,
        "descriptors": descriptors,
        "selection": selection,
        "precision": precision,
    }
    given = {name: value for name, value in asked.items() if value is not None}
    contenders = _contenders(chosen, preset, given, device)
    pairs = EvaluationSettings().pairs if device == "cpu" else 256
    settings = EvaluationSettings(depth=depth, pairs=pairs, memory=int(memory * 2**30), device=device)
    if out is not None and (out / "results.jsonl").exists():
        load_results(out)  # a damaged file is refused before the work, not after it
    with _progress_bar() as on_progress:
        results = run(
            benchmarks,
            contenders,
            cache or default_cache_folder(),
            settings,
            out=out,
            rankings=rankings,
            split_by=split_by,
            on_progress=on_progress,
        )
    _show(results, table_format, baseline, seed, out)
    if lost := max(int(result.details["missing"]) for result in results):
        typer.echo(f"up to {lost:,} pictures of a data set were missing or unreadable: see the table", err=True)


def _contenders(methods: list[Method], preset: str | None, given: dict[str, Any], device: str) -> list[Contender]:
    """Every method with its extractor; equal settings share one."""
    from elvis.errors import UnknownName
    from elvis.evaluation.run import Contender
    from elvis.extract import DEFAULT_PRESET, PRESETS, ExtractionSettings, Extractor

    if preset is not None and preset not in PRESETS:
        raise UnknownName("preset", preset, PRESETS)
    extractors: dict[ExtractionSettings, Extractor] = {}
    contenders: list[Contender] = []
    for method in methods:
        base = PRESETS[preset or DEFAULT_PRESET]
        if preset is None and method.config.get("extraction"):
            base = ExtractionSettings.from_dict(method.config["extraction"])
        settings = replace(base, **given)
        if settings not in extractors:
            extractors[settings] = Extractor(settings, device=device)
        contenders.append(Contender(method, extractors[settings], settings.to_dict()))
    return contenders


def _show(results: list[Result], form: Format, baseline: str | None, seed: int, out: Path | None) -> None:
    """Print the tables; beside results that are kept, keep them too, in every format."""
    from elvis.errors import CacheError
    from elvis.evaluation.cache import write_atomically
    from elvis.evaluation.tables import SUFFIXES, dataset_table, main_table

    tables = [main_table(results, baseline=baseline, seed=seed), dataset_table(results)]
    typer.echo("\n\n".join(table.render(form) for table in tables))
    if out is None:
        return
    for each, suffix in SUFFIXES.items():
        text = "\n\n".join(table.render(each) for table in tables) + "\n"
        try:
            write_atomically(out / f"table.{suffix}", text.encode())
        except OSError as error:
            raise CacheError(f"{out} cannot be written: {error.strerror}") from error


def _list() -> None:
    from elvis.evaluation.datasets import DATASETS
    from elvis.evaluation.methods import known_methods

    typer.echo("Data sets:")
    for name, adapter in DATASETS.items():
        protocol = adapter.protocol
        typer.echo(f"  {name}: {adapter.summary}")
        typer.echo(f"    metric {protocol.metric_name}; junk: {protocol.junk}; query cropping: {protocol.cropping}")
        typer.echo(f"    licence: {protocol.licence}; source: {protocol.source}")
        for choice in protocol.settled:
            typer.echo(f"    settled: {choice}")
    typer.echo(f"Methods: {', '.join(known_methods())}")


@contextmanager
def _progress_bar() -> Generator[OnProgress]:
    """A bar a stage on stderr with the time that is left; where stderr is no terminal, a line a minute."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[left]}"))
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _line_a_minute()
        return
    with Bars(*columns, console=console, transient=True) as bars:
        tasks: dict[str, Any] = {}

        def show(progress: Progress) -> None:
            if progress.stage not in tasks:
                tasks[progress.stage] = bars.add_task(progress.stage, total=progress.total, left="")
            bars.update(tasks[progress.stage], completed=progress.done, total=progress.total, left=_time_left(progress))

        yield show


def _line_a_minute() -> OnProgress:
    told: dict[str, float] = {}

    def show(progress: Progress) -> None:
        now = time.monotonic()
        if progress.done == progress.total or progress.stage not in told or now - told[progress.stage] >= 60:
            told[progress.stage] = now
            counts = f"{progress.stage}: {progress.done:,} of {progress.total:,}"
            typer.echo(", ".join(filter(None, (counts, _time_left(progress)))), err=True)

    return show


def _time_left(progress: Progress) -> str:
    if progress.seconds_left is None or progress.done == progress.total:
        return ""
    return f"{_duration(progress.seconds_left)} left"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
