"""Weight files: the only place that opens one. Nothing a stranger wrote is ever executed."""

from __future__ import annotations

import hashlib
import pickle
import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from elvis.errors import WeightsError


def file_sha256(path: Path) -> str:
    """Hexadecimal SHA-256 of a file, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while piece := stream.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def verify_sha256(path: Path, expected: str) -> None:
    """Refuse a weight file whose content is not what its record says."""
    if not path.is_file():
        raise WeightsError(f"{path} is missing: install the package again")
    if (found := file_sha256(path)) != expected:
        raise WeightsError(
            f"{path} is damaged (sha256 {found[:12]}…, expected {expected[:12]}…): install the package again"
        )


def state_sha256(state: dict[str, Tensor]) -> str:
    """Hexadecimal SHA-256 of a state dict's names, shapes and values: what binds an index to a head."""
    digest = hashlib.sha256()
    for name in sorted(state):
        value = state[name].detach().to("cpu", torch.float32).contiguous()
        digest.update(f"{name}{tuple(value.shape)}".encode())
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()


def read_published(path: str | Path) -> dict[str, Tensor]:
    """The state dict of a published checkpoint, in float32 and without a `module.` prefix.

    Takes `.safetensors`, or a PyTorch file that holds a state dict or a dict with the key `state` beside others
    such as `optim` and `epoch`. Only tensors and plain containers are read: a file that asks for anything else
    is refused with its reason.
    """
    path = Path(path)
    if not path.is_file():
        raise WeightsError(f"{path}: no such file")
    content: Mapping[str, object] = _read_safetensors(path) if path.suffix == ".safetensors" else _read_torch(path)
    state = content.get("state", content)
    if not isinstance(state, dict) or not state:
        raise WeightsError(f"{path} holds no state dict: expected tensors by name, or such a dict under 'state'")
    tensors: dict[str, Tensor] = {}
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise WeightsError(f"{path} holds no state dict: {name} is no tensor")
        tensors[str(name).removeprefix("module.")] = value.float() if value.is_floating_point() else value
    return tensors


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except SafetensorError as error:
        raise WeightsError(f"{path} is no safetensors file, or is cut short: {error}") from error


def _read_torch(path: Path) -> dict[str, object]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about pickle protocols: what it cannot read is refused
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        reason = str(error).partition("WeightsUnpickler error:")[2].strip().splitlines()
        raise WeightsError(
            f"{path} is refused: it asks for more than tensors ({reason[0] if reason else error})"
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        first_line = str(error).partition("\n")[0]
        raise WeightsError(f"{path} is no PyTorch checkpoint, or is cut short: {first_line}") from error
    if not isinstance(content, dict):
        raise WeightsError(f"{path} holds a {type(content).__name__}, expected a dict of tensors")
    return content
