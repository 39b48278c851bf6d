"""Ranking methods by name, as `--methods` takes them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elvis.errors import UnknownName
from elvis.models import MODELS, Chamfer, load_model
from elvis.models.base import Matcher

GLOBAL = "global"
VARIANTS: dict[str, dict[str, Any]] = {"raw": {"standardise": False}, "standardised": {"standardise": True}}
"""Settings of a model without parameters, by what follows `@`. Nothing follows: standardised, as in the product."""


@dataclass(frozen=True, slots=True)
class Method:
    """A way to rank.

    Attributes:
        label: what tables call it.
        model: re-ranks; None: the global vector alone.
        hand_made: whether nothing was trained for it.
        weights: where its weights came from; None: it has none, or those that come with the library.
        config: the model's settings.
    """

    label: str
    model: Matcher | None
    hand_made: bool
    weights: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def fingerprint(self) -> str | None:
        """Of settings and weights; None for the global vector."""
        return None if self.model is None else self.model.fingerprint


def known_methods() -> list[str]:
    """Every name that `load_methods` takes.

    Example:
        >>> [name for name in known_methods() if name.startswith("chamfer-ot")]
        ['chamfer-ot', 'chamfer-ot@raw', 'chamfer-ot@standardised']
    """
    names = [GLOBAL]
    for name, kind in MODELS.items():
        names.append(name)
        if issubclass(kind, Chamfer):
            names += [f"{name}@{variant}" for variant in VARIANTS]
    return names


def load_methods(names: Sequence[str], heads: Sequence[str] = ()) -> list[Method]:
    """Methods in the order of their names; a trained one once for each of its heads.

    Args:
        names: of `known_methods`.
        heads: folders or hub names of weights, for every trained method, or `NAME=PLACE` for one.

    Example:
        >>> [method.label for method in load_methods(["global", "chamfer-ot@raw"])]
        ['global', 'chamfer-ot@raw']
    """
    methods: list[Method] = []
    for text in names:
        if text not in known_methods():
            raise UnknownName("method", text, known_methods())
        name, _, variant = text.partition("@")
        if text == GLOBAL:
            methods.append(Method(GLOBAL, None, hand_made=True))
        elif issubclass(MODELS[name], Chamfer):
            settings = VARIANTS[variant or "standardised"]
            methods.append(_method(text, load_model(name, **settings), None))
        else:
            places = _places(name, heads) or [None]
            for place in places:
                label = name if len(places) == 1 or place is None else f"{name}:{Path(place).name}"
                methods.append(_method(label, load_model(name, place), place))
    used = {method.weights for method in methods}
    if unused := [head for head in heads if head not in used and head.partition("=")[2] not in used]:
        raise ValueError(f"heads: no method among {', '.join(names)} takes {', '.join(unused)}")
    labels = [method.label for method in methods]
    if twice := sorted({label for label in labels if labels.count(label) > 1}):
        raise ValueError(f"methods: expected every one once, got {', '.join(twice)} again")
    return methods


def _places(name: str, heads: Sequence[str]) -> list[str]:
    places: list[str] = []
    for head in heads:
        owner, sign, place = head.partition("=")
        if not (sign and owner in MODELS):
            places.append(head)
        elif owner == name:
            places.append(place)
    return places


def _method(label: str, model: Matcher, weights: str | None) -> Method:
    config: Any = getattr(model, "config", None)
    settings = dataclasses.asdict(config) if dataclasses.is_dataclass(config) and not isinstance(config, type) else {}
    trained = any(True for _ in model.parameters())
    return Method(label, model.eval(), not trained, weights, settings)
