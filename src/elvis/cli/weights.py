"""`elvis weights`: what is here, under which licence; published checkpoints turned into ours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

weights_app = typer.Typer(help="List weights and their licences; convert published checkpoints.", no_args_is_help=True)


@weights_app.command("list")
def list_weights() -> None:
    """List the backbones that go by a name, with licence and source; carried ones need no download."""
    from rich.console import Console
    from rich.table import Table

    from elvis.backbones.records import BACKBONES

    table = Table(header_style="bold", box=None)
    for column in ("name", "from", "licence", "in the paper"):
        table.add_column(column)
    for record in BACKBONES.values():
        source = "carried in the package" if record.folder else record.hub + (" (gated)" if record.gated else "")
        table.add_row(record.name, source, record.licence, record.used_by)
    Console().print(table)


@weights_app.command()
def convert(
    published: Annotated[Path, typer.Argument(help="Published checkpoint (.pt, .pth or .safetensors).")],
    out: Annotated[Path, typer.Argument(help="Folder to write: config.json and model.safetensors.")],
    method: Annotated[str, typer.Option(help="Which method's checkpoint it is.")] = "elvis",
) -> None:
    """Turn a published checkpoint into a head that `elvis search --head OUT` and `load_model` take.

    Reads tensors only: a file that asks for more is refused.
    """
    from elvis.errors import UnknownName, WeightsError
    from elvis.models.published import CONVERTERS

    if method not in CONVERTERS:
        raise UnknownName("method", method, CONVERTERS)
    if out.is_file():
        raise WeightsError(f"{out} is a file: expected a folder to write")
    model = CONVERTERS[method](published)
    model.save_pretrained(out)
    typer.echo(f"{out}: {method}, {sum(p.numel() for p in model.parameters()):,} parameters, {model.summary}")
