"""`elvis export`: a trained head for other runtimes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

FORMATS = {"onnx": "export_onnx", "torch": "export_program"}


def export(
    head: Annotated[str, typer.Argument(help="Trained head: a folder, or owner/name on the hub.", show_default=False)],
    out: Annotated[Path, typer.Argument(help="Folder to write the graphs to.", show_default=False)],
    to: Annotated[str, typer.Option("--format", help="onnx (ONNX), or torch (torch.export, .pt2).")] = "onnx",
    descriptors: Annotated[
        int | None,
        typer.Option(min=1, help="Descriptors a picture, padding included; default: as the head was trained."),
    ] = None,
) -> None:
    r"""Write a head as two graphs: `prepare` for one picture alone, `score` for a query against many pictures.

    The number of descriptors is fixed, that of pictures is free; masks tell padding from descriptors. ONNX needs
    `pip install 'elvis-retrieval\[onnx]'`.
    """
    from elvis import export as writers
    from elvis.errors import UnknownName, WeightsError
    from elvis.models import Elvis, load_model

    if to not in FORMATS:
        raise UnknownName("format", to, FORMATS)
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out}: expected a folder to write to, got a file")
    model = load_model("elvis", head)
    if not isinstance(model, Elvis):
        raise WeightsError(f"{head}: expected an ELViS head, got {type(model).__name__}")
    files = getattr(writers, FORMATS[to])(model, out, descriptors=descriptors)
    for name, path in files.items():
        typer.echo(f"{path}: {name}, {path.stat().st_size:,} bytes, {model.summary}")
