"""All models by name, and how to get one ready to use."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from elvis.errors import UnknownName, WeightsError
from elvis.models.base import Matcher
from elvis.models.chamfer import Chamfer, ChamferConfig, ChamferTransport
from elvis.models.elvis import Elvis, ElvisConfig

MODELS: dict[str, type[Elvis] | type[Chamfer]] = {
    "elvis": Elvis,
    "chamfer": Chamfer,
    "chamfer-ot": ChamferTransport,
}


def load_model(name: str, weights: str | Path | None = None, **settings: Any) -> Matcher:
    """A model ready for inference.

    Args:
        name: one of `MODELS`.
        weights: folder written by `save_pretrained` or `elvis weights convert`, or a repository on the hub; the
            models without parameters take none.
        settings: of a model without parameters, by the names of its configuration, e.g. `standardise=True`; those of
            a trained head are saved with it and cannot be changed here.

    Example:
        >>> load_model("chamfer-ot", standardise=True).config
        ChamferConfig(standardise=True)
        >>> load_model("shamfer")
        Traceback (most recent call last):
        ...
        elvis.errors.UnknownName: unknown model 'shamfer': choose one of chamfer, chamfer-ot, elvis
    """
    if name not in MODELS:
        raise UnknownName("model", name, MODELS)
    kind = MODELS[name]
    if issubclass(kind, Chamfer):
        if weights is not None:
            raise WeightsError(f"{name} has no parameters: leave the weights out")
        known = [field.name for field in dataclasses.fields(ChamferConfig)]
        if unknown := sorted(set(settings) - set(known)):
            raise TypeError(f"{name}: expected settings among {known}, got {unknown}")
        return kind(ChamferConfig(**settings)).eval()
    if settings:
        raise TypeError(f"{name}: its settings are saved with its weights, expected none, got {sorted(settings)}")
    if weights is None:
        raise WeightsError(f"{name} needs weights: no trained head ships with this version, pass a folder or hub name")
    return _load_head(kind, weights)


def _load_head(kind: type[Elvis], weights: str | Path) -> Elvis:
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
    from safetensors import SafetensorError

    folder = Path(weights)
    if folder.exists() and not (folder / "config.json").is_file():
        raise WeightsError(f"{folder} holds no head: expected a folder with config.json and model.safetensors")
    try:
        head = kind.from_pretrained(weights)
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError) as error:
        first_line = str(error).partition("\n")[0]
        raise WeightsError(f"{weights} is neither a folder nor to be had from the hub: {first_line}") from error
    except json.JSONDecodeError as error:
        raise WeightsError(f"{folder / 'config.json'} is no JSON: {error}") from error
    except (FileNotFoundError, SafetensorError, RuntimeError, TypeError, ValueError) as error:
        first_lines = " ".join(str(error).split())[:300]
        raise WeightsError(f"{weights} does not hold a whole {kind.__name__} head: {first_lines}") from error
    return head.eval()


__all__ = [
    "MODELS",
    "Chamfer",
    "ChamferConfig",
    "ChamferTransport",
    "Elvis",
    "ElvisConfig",
    "Matcher",
    "load_model",
]
