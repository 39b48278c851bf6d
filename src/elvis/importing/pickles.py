"""Published pickles without the danger of pickles: arrays, tensors and plain containers, and nothing else."""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elvis.errors import DataSetError
from elvis.image_files import shown


def read_plain_pickle(path: str | Path) -> Any:
    """What a pickle of numpy arrays, torch tensors, dicts, lists and numbers holds.

    Nothing that the file names is called except the functions that rebuild arrays and tensors; a file that asks for
    anything else is refused before anything of it runs.

    Raises:
        DataSetError: there is no such file, it is no such pickle, or it is refused.
    """
    try:
        with Path(path).open("rb") as stream:
            return _Plain(stream).load()
    except OSError as error:
        raise DataSetError(f"{shown(path)} cannot be read: {error.strerror}") from error
    except pickle.UnpicklingError as error:
        raise DataSetError(f"{shown(path)} is refused or damaged: {shown(str(error).partition(chr(10))[0])}") from error
    except (EOFError, ValueError, TypeError, AttributeError, IndexError, KeyError, ImportError, RuntimeError) as error:
        raise DataSetError(f"{shown(path)} is no pickle, or is cut short") from error


def _storage(content: bytes) -> Any:
    """A tensor's memory, which torch pickles as a file of its own."""
    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)


def _bytes(text: str, encoding: str) -> bytes:
    """How old pickles write bytes; one encoding is enough for that."""
    if encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"it asks for the encoding {encoding!r}, expected arrays and plain values")
    return text.encode("latin1")


def _allowed() -> dict[tuple[str, str], Any]:
    arrays, numbers = (import_module(f"numpy._core.{name}") for name in ("multiarray", "numeric"))
    allowed: dict[tuple[str, str], Any] = {
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        ("collections", "OrderedDict"): OrderedDict,
        ("_codecs", "encode"): _bytes,
        ("torch._utils", "_rebuild_tensor_v2"): import_module("torch._utils")._rebuild_tensor_v2,
        ("torch.storage", "_load_from_bytes"): _storage,
    }
    for package in ("numpy.core", "numpy._core"):  # the name before and since numpy 2
        allowed[f"{package}.multiarray", "_reconstruct"] = arrays._reconstruct
        allowed[f"{package}.multiarray", "scalar"] = arrays.scalar
        allowed[f"{package}.numeric", "_frombuffer"] = numbers._frombuffer
    return allowed


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _allowed()[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, expected arrays and plain values") from None
