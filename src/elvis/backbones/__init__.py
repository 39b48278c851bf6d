"""Backbones: a picture batch in, patch grid and global vector out."""

from elvis.backbones.network import (
    ENGINES,
    PRECISIONS,
    Backbone,
    Tokens,
    load_backbone,
    resolve_engine,
    resolve_precision,
)
from elvis.backbones.records import BACKBONES, FAMILIES, BackboneRecord

__all__ = [
    "BACKBONES",
    "ENGINES",
    "FAMILIES",
    "PRECISIONS",
    "Backbone",
    "BackboneRecord",
    "Tokens",
    "load_backbone",
    "resolve_engine",
    "resolve_precision",
]
