"""Which model ranks, and whether an index holds what it needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from elvis.errors import IndexMismatch, UnknownName
from elvis.models import Matcher, load_model
from elvis.store import Index, IndexCard

GLOBAL = "global"
"""The method that leaves the order of the global vectors as it is."""
METHODS = (GLOBAL, "chamfer", "chamfer-ot", "elvis")
DEFAULT_METHOD = "chamfer-ot"
"""Needs no training: Chamfer similarity after transport, channels standardised per picture."""


def ranking_model(method: str, head: str | Path | None = None, *, standardise: bool = True) -> Matcher:
    """The model of a method, as indexing and comparing use it when nothing else is recorded.

    Args:
        method: one of `METHODS` but `global`.
        head: folder or hub name of a trained head, for `elvis`.
        standardise: for the methods without training: standardise the channels of each picture.

    Example:
        >>> ranking_model("chamfer-ot").config
        ChamferConfig(standardise=True)
    """
    if method not in METHODS or method == GLOBAL:
        raise UnknownName("method", method, [name for name in METHODS if name != GLOBAL])
    if method == "elvis":
        return load_model("elvis", head)
    return load_model(method, standardise=standardise)


def remember_head(card: IndexCard, head: str | Path | None) -> IndexCard:
    """The card with the place of the trained head, so that a search finds it again."""
    if head is None:
        return card
    place = str(Path(head).resolve()) if Path(head).exists() else str(head)
    return replace(card, model_settings={**card.model_settings, "head": place})


class IndexRanking:
    """A model bound to an index: prepares queries, and says in which form the index's pictures must be fetched.

    Args:
        index: what will be searched.
        method: one of `METHODS`; None: the method that the index was made for.
        head: folder or hub name of a trained head, for `elvis`; None: the one the index was made with.
        device: where the model computes.

    Raises:
        IndexMismatch: the index does not hold what the method needs; names the command that would help.
    """

    def __init__(
        self, index: Index, method: str | None = None, head: str | Path | None = None, *, device: str = "cpu"
    ) -> None:
        card = index.card
        self.method = method or card.model
        if self.method not in METHODS:
            raise UnknownName("method", self.method, METHODS)
        self.model: Matcher | None = None
        self.from_raw = False
        if self.method == GLOBAL:
            return
        if self.method == "elvis":
            self.model = load_model("elvis", head or card.model_settings.get("head"))
        else:
            # An index for a trained head says nothing about how to prepare for the others.
            by_hand = card.model != "elvis"
            standardise = bool(card.model_settings.get("standardise", True)) if by_hand else True
            self.model = load_model(self.method, standardise=standardise)
        self.model.to(device)
        if self.model.fingerprint != card.model_fingerprint:
            self.from_raw = True
            if not card.keep_raw:
                raise IndexMismatch(self._cannot(index.folder, card))

    def _cannot(self, folder: Path, card: IndexCard) -> str:
        other = f"{self.method} with another head" if self.method == card.model else self.method
        return (
            f"{folder} holds descriptors prepared for {card.model} only and cannot be ranked by {other}: index the "
            f"pictures again with --keep-raw, after which any method works: elvis index PICTURES --index NEW --keep-raw"
        )
