"""A checkpoint run by OpenVINO: on a CPU about three times as fast as plain torch in fp32 where it has bf16 units.

A network is translated from torch once, which takes some seconds, and kept in the user's cache folder: later starts
need neither `transformers` nor the translation. One translation serves pictures of every size and both precisions.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import sys
import tempfile
import threading
import warnings
from dataclasses import asdict
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from elvis.backbones.torch_network import Facts, Passed, TorchNetwork, check_block, quiet
from elvis.errors import WeightsError
from elvis.image_files import shown
from elvis.weights import file_sha256

logger = logging.getLogger(__name__)

PRECISIONS = {torch.float32: "f32", torch.bfloat16: "bf16"}
"""What OpenVINO computes in, by its own names."""

_REVISION = 1
"""Raised when the same checkpoint and packages begin to be translated otherwise."""


class OpenVinoNetwork:
    """A translated network; see `Network` in `torch_network.py`.

    Uses as many threads as torch does at the time. May be called from several threads, one after the other.

    Args:
        folder: of the checkpoint.
        sha256: of the checkpoint.
        family: key of `FAMILIES`.
        block: counted from the end.
        dtype: float32 or bfloat16.
        kept_in: folder of translations; None: see `default_cache_folder`.
    """

    engine = "openvino"

    def __init__(
        self, folder: Path, sha256: str, family: str, block: int, dtype: torch.dtype, kept_in: Path | None = None
    ) -> None:
        core = _core()
        model, self.facts = _translation(core, folder, sha256, family, block, kept_in or default_cache_folder())
        compiled = core.compile_model(
            model,
            "CPU",
            {
                "INFERENCE_PRECISION_HINT": PRECISIONS[dtype],
                "PERFORMANCE_HINT": "LATENCY",
                "INFERENCE_NUM_THREADS": torch.get_num_threads(),
            },
        )
        taken = str(compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name())
        self.dtype = next(kind for kind, name in PRECISIONS.items() if name == taken)
        self._request: Any = compiled.create_infer_request()
        self._lock = threading.Lock()

    def __call__(self, pixels: Tensor) -> Passed:
        """See `Network`."""
        with self._lock:
            self._request.infer([pixels.contiguous().numpy()], share_inputs=True)
            # Copies: the engine writes the next answer into the same memory.
            out = {
                name: torch.from_numpy(value.copy())
                for output, value in self._request.results.items()
                for name in output.names
            }
        rotation = (out["cosines"], out["sines"]) if "cosines" in out else None
        return Passed(out["tokens"], out["summary"], out.get("query"), out.get("keys"), rotation, out.get("pooling"))


class _Flat(nn.Module):
    """The same network with its answer as a plain tuple, which is what can be translated."""

    def __init__(self, network: TorchNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixels: Tensor) -> tuple[Tensor, ...]:
        return tuple(_parts(self.network(pixels)).values())


def _parts(passed: Passed) -> dict[str, Tensor]:
    cosines, sines = passed.rotation or (None, None)
    every = {
        "tokens": passed.tokens,
        "summary": passed.summary,
        "query": passed.query,
        "keys": passed.keys,
        "cosines": cosines,
        "sines": sines,
        "pooling": passed.pooling,
    }
    return {name: value for name, value in every.items() if value is not None}


def _translation(core: Any, folder: Path, sha256: str, family: str, block: int, kept_in: Path) -> tuple[Any, Facts]:
    """The translated network from the cache, or made and put there."""
    made_of = {
        "revision": _REVISION,
        "checkpoint": sha256,
        "block": block,
        "versions": {name: metadata.version(name) for name in ("openvino", "torch", "transformers")},
    }
    name = f"{sha256[:16]}-block{block}-"
    place = kept_in / (name + hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:16])
    if (facts := _sound(place)) is not None:
        check_block(block, facts.blocks)
        return core.read_model(place / "model.xml"), facts
    network = TorchNetwork(folder, family, block, torch.float32, torch.device("cpu"))
    logger.info("translating %s for OpenVINO, once, into %s", shown(folder), shown(place))
    model = _translated(network)
    try:
        _keep(model, network.facts, place)
    except OSError as error:
        reason = error.strerror or error
        logger.warning("%s: the translated backbone cannot be kept: %s; it is made at each start", kept_in, reason)
        return model, network.facts
    for older in kept_in.glob(f"{name}*"):
        if older != place:
            shutil.rmtree(older, ignore_errors=True)
    return model, network.facts


def _translated(network: TorchNetwork) -> Any:
    """The network in OpenVINO's own form, for pictures of every size."""
    # By name: the type checker has the package on some machines only.
    openvino, frontends = import_module("openvino"), import_module("openvino.frontend")
    decoder = import_module("openvino.frontend.pytorch.ts_decoder").TorchScriptPythonDecoder

    # Any size but a square one: it must not be taken for the size that the position table was made for.
    example = torch.rand(2, 3, 3 * network.facts.patch, 5 * network.facts.patch)
    with torch.no_grad(), quiet(), warnings.catch_warnings():  # what inference mode traces cannot be read
        warnings.simplefilter("ignore")  # of tracing: sizes are computed in the trace, tests hold it to other sizes
        names = list(_parts(network(example)))
        frontend = frontends.FrontEndManager().load_by_framework("pytorch")
        try:
            traced = decoder(_Flat(network), example_input=example, trace_kwargs={"check_trace": False})
            model = frontend.convert(frontend.load(traced))
        except RuntimeError as error:
            reason = str(error).strip().partition("\n")[0]
            raise WeightsError(f"OpenVINO cannot translate this backbone ({reason}): use engine='torch'") from error
    for step in model.get_ops():
        if step.get_type_name() == "Interpolate":
            # As torch does it today; the other form differs where a picture is one patch wide or high.
            step.set_attribute("coordinate_transformation_mode", "half_pixel")
    model.reshape({model.inputs[0]: openvino.PartialShape([-1, 3, -1, -1])})
    for name, output in zip(names, model.outputs, strict=True):
        output.get_tensor().set_names({name})
    return model


def _keep(model: Any, facts: Facts, place: Path) -> None:
    """Puts a translation under its name once it is whole."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".new-", ignore_cleanup_errors=True) as scratch:
        new = Path(scratch, place.name)
        new.mkdir()
        try:
            openvino_without_reports().save_model(model, new / "model.xml", compress_to_fp16=False)
        except RuntimeError as error:
            raise OSError(str(error).strip().partition("\n")[0]) from error
        sums = {file: file_sha256(new / file) for file in ("model.xml", "model.bin")}
        (new / "card.json").write_text(json.dumps({"facts": asdict(facts), "sha256": sums}))
        if place.exists():  # damaged, or another process was faster
            shutil.rmtree(place, ignore_errors=True)
        new.rename(place)


def _sound(place: Path) -> Facts | None:
    """The facts of a kept translation; None where there is none, or it is not what was written."""
    if not place.is_dir():
        return None
    try:
        card = json.loads((place / "card.json").read_bytes())
        if all(file_sha256(place / file) == expected for file, expected in card["sha256"].items()):
            return Facts(**card["facts"])
        reason = "checksum differs"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = str(error)
    logger.warning("%s is damaged (%s): made anew", shown(place), reason)
    return None


@cache
def _core() -> Any:
    """One for the whole process, and never let go.

    Each sets up memory for signal handlers and puts back what it found when it goes. Where several come and go in any
    other order than last in, first out, freed memory is put back, and the next signal (Ctrl-C) kills the process.
    """
    return openvino_without_reports().Core()


def openvino_without_reports() -> Any:
    """The package `openvino`, kept from telling its makers over the network that it is used, as it otherwise does."""
    helper = "openvino_telemetry"
    if "openvino" in sys.modules or helper in sys.modules:
        return import_module("openvino")  # somebody else's decision
    sys.modules[helper] = None  # pyright: ignore[reportArgumentType]  # the import system's way to refuse a module
    try:
        return import_module("openvino")
    finally:
        del sys.modules[helper]


def default_cache_folder() -> Path:
    """Where translated networks are kept: in the user's cache folder, as the system has it."""
    base = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "elvis" / "openvino"
