"""`elvis compare` and `elvis explain`: are two pictures of the same thing, and what says so."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from elvis.cli.options import AsJson, Device, Head, read_crop


def compare(
    first: Annotated[Path, typer.Argument(help="A picture.", show_default=False)],
    second: Annotated[Path, typer.Argument(help="Another one.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(metavar="PNG", help="Save the matches of both pictures, and what was ignored.")
    ] = None,
    crop: Annotated[
        str | None, typer.Option(help="The object in the first: x,y,w,h as fractions of the upright picture.")
    ] = None,
    method: Annotated[str, typer.Option(help="elvis, chamfer or chamfer-ot.")] = "",
    head: Head = None,
    preset: Annotated[str | None, typer.Option(help="fast, balanced or accurate.")] = None,
    as_json: AsJson = False,
    device: Device = "cpu",
) -> None:
    """Score two pictures, say where they match, and draw it."""
    from elvis.comparison import Comparison
    from elvis.errors import UnknownName
    from elvis.extract import DEFAULT_PRESET, PRESETS, Extractor
    from elvis.ranking import DEFAULT_METHOD, ranking_model

    area = read_crop(crop)
    name = preset or DEFAULT_PRESET
    if name not in PRESETS:
        raise UnknownName("preset", name, PRESETS)
    method = method or ("elvis" if head else DEFAULT_METHOD)
    model = ranking_model(method, head)
    compared = Comparison.of(first, second, Extractor(PRESETS[name], device=device), model.to(device), crop=area)
    facts = compared.facts()
    if as_json:
        sys.stdout.write(json.dumps({"first": str(first), "second": str(second), "method": method, **facts}) + "\n")
    else:
        sys.stdout.write(f"{method} score {facts['score']:.3f} (mean vote {facts['mean_vote']:.3f}), ")
        sys.stdout.write(f"global similarity {facts['global_similarity']:.3f}\n")
        for side, box in (("first", facts["query_box"]), ("second", facts["box"])):
            place = "too few matches agree on a place" if box is None else ",".join(f"{n:.2f}" for n in box)
            sys.stdout.write(f"  match in the {side}: {place}\n")
    if out is not None:
        compared.save(out)
        if not as_json:
            sys.stdout.write(f"  drawn in {out}\n")
