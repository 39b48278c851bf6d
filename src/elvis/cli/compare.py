"""`elvis compare` and `elvis explain`: are two pictures of the same thing, and what says so."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elvis.cli.options import AsJson, Device, Head, read_crop

if TYPE_CHECKING:
    from elvis.comparison import Comparison

First = Annotated[Path, typer.Argument(help="A picture.", show_default=False)]
Second = Annotated[Path, typer.Argument(help="Another one.", show_default=False)]
CropOption = Annotated[
    str | None, typer.Option("--crop", help="The object in the first: x,y,w,h as fractions of the upright picture.")
]
Method = Annotated[str | None, typer.Option("--method", help="elvis, chamfer or chamfer-ot.", show_default=False)]
Preset = Annotated[str | None, typer.Option("--preset", help="fast, balanced or accurate.", show_default=False)]


def compare(
    first: First,
    second: Second,
    out: Annotated[
        Path | None, typer.Option(metavar="PNG", help="Draw the matches and what was ignored (png, pdf, svg, jpg).")
    ] = None,
    crop: CropOption = None,
    method: Method = None,
    head: Head = None,
    preset: Preset = None,
    as_json: AsJson = False,
    device: Device = "cpu",
) -> None:
    """Score two pictures, say where they match, and draw it."""
    from elvis.visualise import save

    compared = _compared(first, second, crop, method, head, preset, device)
    _show(first, second, compared, as_json=as_json)
    if out is not None:
        save(compared.sheet(), out)
        sys.stderr.write(f"drawn in {out}\n")


def explain(
    first: First,
    second: Second,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the pictures.")] = Path("explanation"),
    crop: CropOption = None,
    method: Method = None,
    head: Head = None,
    preset: Preset = None,
    as_json: AsJson = False,
    device: Device = "cpu",
) -> None:
    """Compare two pictures and save every picture of the match: before and after transport, ignored parts, matrices."""
    from elvis.visualise import save

    compared = _compared(first, second, crop, method, head, preset, device)
    _show(first, second, compared, as_json=as_json)
    for name, draw in compared.figures().items():
        save(draw(), out / f"{name}.png")
    sys.stderr.write(f"drawn in {out}: {', '.join(f'{name}.png' for name in compared.figures())}\n")


def _compared(
    first: Path, second: Path, crop: str | None, method: str | None, head: str | None, preset: str | None, device: str
) -> Comparison:
    from elvis.building import extraction_for
    from elvis.comparison import Comparison
    from elvis.extract import Extractor
    from elvis.ranking import DEFAULT_METHOD, ranking_model

    area = read_crop(crop)
    method = method or ("elvis" if head else DEFAULT_METHOD)
    model = ranking_model(method, head).to(device)
    extractor = Extractor(extraction_for(preset, model), device=device)
    return Comparison.of(first, second, extractor, model, method=method, crop=area)


def _show(first: Path, second: Path, compared: Comparison, *, as_json: bool) -> None:
    facts: dict[str, Any] = {"first": str(first), "second": str(second), "method": compared.method, **compared.facts()}
    if as_json:
        sys.stdout.write(json.dumps(facts) + "\n")
        return
    sys.stdout.write(
        f"{compared.method} score {facts['score']:.3f} (mean vote {facts['mean_vote']:.4f}), "
        f"global similarity {facts['global_similarity']:.3f}\n"
    )
    for side, box in (("first", facts["query_box"]), ("second", facts["box"])):
        place = "nowhere: too few matches agree on a place" if box is None else ",".join(f"{n:.2f}" for n in box)
        sys.stdout.write(f"  matches in the {side} at {place}\n")
