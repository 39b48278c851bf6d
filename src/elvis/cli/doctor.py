"""`elvis doctor`: what this machine has, and whether everything that ships is in order."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elvis.cli.options import AsJson

if TYPE_CHECKING:
    from elvis.backbones.records import BackboneRecord
    from elvis.errors import ElvisError

PACKAGES = ("elvis-retrieval", "torch", "transformers", "lancedb", "pyarrow", "pillow", "numpy", "llvmlite", "openvino")


def doctor(
    index: Annotated[
        Path | None, typer.Option("--index", "-i", help="Look at this index too.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what this machine has, whether the carried weights are whole, and how an index is.

    Ends with the code of what is wrong, when something is.
    """
    facts, trouble = examine(index)
    if as_json:
        sys.stdout.write(json.dumps({**facts, "trouble": [str(error) for error in trouble]}) + "\n")
    else:
        from rich.console import Console
        from rich.table import Table

        table = Table(show_header=False, box=None)
        for group, content in facts.items():
            for line, (name, value) in enumerate(content.items()):
                table.add_row(f"[bold]{group}[/bold]" if line == 0 else "", name, str(value))
        Console().print(table)
        sys.stdout.write("".join(f"TROUBLE: {error}\n" for error in trouble) or "everything is in order\n")
    if trouble:
        raise typer.Exit(trouble[0].exit_code)


def examine(index: Path | None) -> tuple[dict[str, dict[str, Any]], list[ElvisError]]:
    """Facts in groups, and the errors found on the way."""
    import torch

    from elvis.backbones import resolve_engine, resolve_precision
    from elvis.errors import ElvisError

    facts: dict[str, dict[str, Any]] = {"versions": {"python": platform.python_version()}}
    for name in PACKAGES:
        try:
            facts["versions"][name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            facts["versions"][name] = "not installed"
    facts["machine"] = {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": torch.backends.cpu.get_cpu_capability(),
        "precision of auto": str(resolve_precision("auto", "cpu")).removeprefix("torch."),
        "engine on the CPU": _engine(resolve_engine("auto", "cpu", "auto")),
        "threads": torch.get_num_threads(),
        "GPU": torch.cuda.get_device_name() if torch.cuda.is_available() else "none that torch can use",
    }
    trouble: list[ElvisError] = []
    facts["weights"] = {}
    for name, check in _weights().items():
        try:
            facts["weights"][name] = check()
        except ElvisError as error:
            facts["weights"][name] = "NOT IN ORDER"
            trouble.append(error)
    if index is not None:
        facts["index"] = {"folder": str(index)}
        try:
            facts["index"].update(_index(index))
        except ElvisError as error:
            trouble.append(error)
    return facts, trouble


def _engine(name: str) -> str:
    """What runs backbones, and what would run them faster."""
    if name == "openvino":
        return name
    return f"{name}; openvino is about twice as fast: pip install 'elvis-retrieval[openvino]'"


def _weights() -> dict[str, Callable[[], str]]:
    """Everything that the package carries → how to check it."""
    from elvis.backbones.records import BACKBONES
    from elvis.weights import verify_sha256

    def checked(record: BackboneRecord) -> str:
        assert record.folder is not None and record.sha256 is not None  # noqa: PT018  carried
        verify_sha256(record.folder / "model.safetensors", record.sha256)
        return f"whole, {record.licence}"

    return {
        name: lambda record=record: checked(record) for name, record in BACKBONES.items() if record.folder is not None
    }


def _index(folder: Path) -> dict[str, Any]:
    from elvis.errors import IndexDamaged
    from elvis.store import Index

    with Index.open(folder) as opened:
        info = opened.info()
    if info["damaged_files"] or info["lost_commits"]:
        raise IndexDamaged(f"{folder} is damaged: elvis verify --index {folder} says where")
    return {"pictures": info["pictures"], "bytes": info["bytes"], "method": info["card"]["model"]}
