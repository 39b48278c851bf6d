"""A trained head for other runtimes: ONNX, or PyTorch's own exported programs.

Two graphs, as a search needs them. `prepare` does what depends on one picture alone:

    vectors (B, M, D′), mask (B, M)                          →  prepared (B, M, D), gain (B, M)

and `score` compares one prepared query with B prepared gallery pictures:

    query (1, M, D), query_gain (1, M), query_mask (1, M),
    gallery (B, M, D), gallery_gain (B, M), gallery_mask (B, M)   →  score (B,)

Masks are booleans, True where a descriptor is real; everything else is float32.

M is fixed, B is free, all rounds are unrolled, and nothing in a graph depends on the data it is given. A picture with
fewer descriptors is padded; what stands at padding is never looked at, as long as it is finite. What the library
refuses with an error (no real descriptor, numbers that are not finite) a graph does not notice.

The graphs are traced from the head's own methods and from `elvis.transport`, not written a second time. Scalings are
used where they hold for every input that the head can meet, the log domain elsewhere.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from elvis.errors import MissingExtra
from elvis.models import Elvis
from elvis.transport import SAFE_EXPONENT, reference, scaling
from elvis.transport.similarity import cosines
from elvis.values import Descriptors

GRAPHS = ("prepare", "score")
OPSET = 18


def export_onnx(head: Elvis, folder: str | Path, *, descriptors: int | None = None) -> dict[str, Path]:
    """Write `prepare.onnx` and `score.onnx`; needs the extra `onnx`.

    Args:
        head: a trained head; its ablation without dust-bins cannot be exported.
        folder: to write to, made where it is missing; earlier exports in it are replaced.
        descriptors: M of the graphs; left out: as many as the head was trained to use.

    Returns:
        The file of each graph. Its metadata say which head it is (`fingerprint`) and what the graph expects.
    """
    import importlib.util

    for package in ("onnx", "onnxscript"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtra(package, "onnx")
    written: dict[str, Path] = {}
    for name, graph in _graphs(head, descriptors).items():
        path = _folder(folder) / f"{name}.onnx"
        with _quiet_exporter():
            program = torch.onnx.export(
                graph.program(),
                dynamic_shapes=graph.free,
                input_names=list(graph.inputs),
                output_names=list(graph.outputs),
                opset_version=OPSET,
                dynamo=True,
                verbose=False,
            )
        if program is None:
            raise RuntimeError("torch.onnx.export gave no program: is this torch older than 2.6?")
        program.model.metadata_props.update(_card(head, graph))
        program.save(path)
        written[name] = path
    return written


def export_program(head: Elvis, folder: str | Path, *, descriptors: int | None = None) -> dict[str, Path]:
    """Write `prepare.pt2` and `score.pt2` for `torch.export.load`, arguments as in `export_onnx`.

    The card is in the extra file `elvis.json` of each.

    Example:
        >>> import tempfile
        >>> from elvis.models import ElvisConfig
        >>> head = Elvis(ElvisConfig(input_dim=8, dim=4, rounds=2)).eval()
        >>> files = export_program(head, tempfile.mkdtemp(), descriptors=5)
        >>> prepare = torch.export.load(files["prepare"]).module()
        >>> [tuple(x.shape) for x in prepare(torch.randn(3, 5, 8), torch.ones(3, 5, dtype=torch.bool))]
        [(3, 5, 4), (3, 5)]
    """
    written: dict[str, Path] = {}
    for name, graph in _graphs(head, descriptors).items():
        path = _folder(folder) / f"{name}.pt2"
        torch.export.save(graph.program(), path, extra_files={"elvis.json": json.dumps(_card(head, graph))})
        written[name] = path
    return written


@dataclass(frozen=True, slots=True, eq=False)
class _Traced(Descriptors):
    """Descriptors inside a graph, where values cannot be looked at; shapes are those of the graph's inputs."""

    def __post_init__(self) -> None:
        """Without the checks of the values, which a graph cannot do."""


@dataclass(frozen=True, slots=True, eq=False)
class _Graph:
    """A module with examples of its inputs; those named `many` have a free first dimension."""

    name: str
    module: nn.Module
    inputs: dict[str, Tensor]
    many: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def free(self) -> dict[str, dict[int, Any] | None]:
        """Which dimensions are free: the first of `many`, one number for all."""
        pictures = torch.export.Dim("pictures", min=1)
        return {name: {0: pictures} if name in self.many else None for name in self.inputs}

    def program(self) -> torch.export.ExportedProgram:
        program = torch.export.export(self.module.eval(), tuple(self.inputs.values()), dynamic_shapes=self.free)
        program.example_inputs = None  # they would be saved, and are larger than the head
        return program


class _Prepare(nn.Module):
    def __init__(self, head: Elvis) -> None:
        super().__init__()
        self.head = head

    def forward(self, vectors: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        prepared = self.head.prepare(_Traced(vectors.masked_fill(~mask[:, :, None], 0), mask))
        if prepared.gain is None:
            raise AssertionError("a head without dust-bins was refused before")
        return prepared.vectors, prepared.gain


class _Score(nn.Module):
    def __init__(self, head: Elvis) -> None:
        super().__init__()
        self.head = head
        temperature = head.temperature
        self.temperature = float(temperature.detach()) if isinstance(temperature, Tensor) else temperature
        self.corner = 0.0 if head.corner is None else float(head.corner.detach())
        self.sinkhorn = scaling.sinkhorn if _largest_exponent(head) <= SAFE_EXPONENT else reference.sinkhorn

    def forward(
        self,
        query: Tensor,
        query_gain: Tensor,
        query_mask: Tensor,
        gallery: Tensor,
        gallery_gain: Tensor,
        gallery_mask: Tensor,
    ) -> Tensor:
        plan = self.sinkhorn(
            cosines(
                _Traced(query.masked_fill(~query_mask[:, :, None], 0), query_mask),
                _Traced(gallery.masked_fill(~gallery_mask[:, :, None], 0), gallery_mask),
            ),
            query_gain.masked_fill(~query_mask, 0),
            gallery_gain.masked_fill(~gallery_mask, 0),
            self.corner,
            temperature=self.temperature,
            rounds=self.head.config.rounds,
            query_mask=query_mask,
            gallery_mask=gallery_mask,
        )
        query_votes = self.head.vote(plan.row_max).masked_fill(~query_mask, 0)
        gallery_votes = self.head.vote(plan.column_max).masked_fill(~gallery_mask, 0)
        return query_votes.sum(dim=1) + gallery_votes.sum(dim=1)


def _largest_exponent(head: Elvis) -> float:
    """Of exp(Ŝ/λ) over all inputs, the corner apart: cosines and gains by Tanh are 1 at most."""
    temperature = float(head.temperature)
    if isinstance(head.gain_function, nn.Parameter):
        return max(1.0, abs(float(head.gain_function.detach()))) / temperature
    return 1 / temperature if head.config.gain_tanh else float("inf")


def _graphs(head: Elvis, descriptors: int | None) -> dict[str, _Graph]:
    if not isinstance(head, Elvis):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers need not be typed
        raise TypeError(f"head: expected an Elvis head, got {type(head).__name__}")
    if head.config.dustbin == "none":
        raise ValueError("head: expected one with dust-bins: without them counts must be equal, and no graph can check")
    places = head.config.descriptors if descriptors is None else descriptors
    if places < 1:
        raise ValueError(f"descriptors: expected at least 1, got {places}")
    generator = torch.Generator().manual_seed(0)

    def vectors(pictures: int, channels: int) -> Tensor:
        return torch.randn(pictures, places, channels, generator=generator)

    def real(pictures: int) -> Tensor:
        return torch.ones(pictures, places, dtype=torch.bool)

    head = _on_cpu_in_float32(head)
    prepare = {"vectors": vectors(2, head.config.input_dim), "mask": real(2)}
    score = {
        "query": nn.functional.normalize(vectors(1, head.config.dim), dim=2),
        "query_gain": torch.zeros(1, places),
        "query_mask": real(1),
        "gallery": nn.functional.normalize(vectors(2, head.config.dim), dim=2),
        "gallery_gain": torch.zeros(2, places),
        "gallery_mask": real(2),
    }
    return {
        "prepare": _Graph("prepare", _Prepare(head), prepare, tuple(prepare), ("prepared", "gain")),
        "score": _Graph("score", _Score(head), score, tuple(score)[3:], ("score",)),
    }


def _on_cpu_in_float32(head: Elvis) -> Elvis:
    copy = Elvis(head.config)
    copy.load_state_dict(head.state_dict())
    return copy.requires_grad_(False).eval()


def _card(head: Elvis, graph: _Graph) -> dict[str, str]:
    """What a file says about itself, for people and for programs."""
    from elvis import __version__

    return {
        "elvis.version": __version__,
        "elvis.graph": graph.name,
        "elvis.fingerprint": head.fingerprint,
        "elvis.head": head.summary,
        "elvis.descriptors": str(next(iter(graph.inputs.values())).shape[1]),
        "elvis.extraction": json.dumps(head.config.extraction, sort_keys=True),
    }


def _folder(folder: str | Path) -> Path:
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path}: expected a folder to write to, got a file")
    path.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def _quiet_exporter() -> Generator[None]:
    """What the exporter warns of, its own future and one name for several dimensions, no user could change."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    before = [each.level for each in loggers]
    for each in loggers:
        each.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.filterwarnings("ignore", "# The axis name", UserWarning)
            yield
    finally:
        for each, level in zip(loggers, before, strict=True):
            each.setLevel(level)
