"""Making an index or bringing it up to date, with every choice that a person may make in one place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from elvis.errors import IndexMismatch, IndexMissing, UnknownName
from elvis.extract import DEFAULT_PRESET, PRESETS, ExtractionSettings, Extractor
from elvis.indexing import add_pictures, card_for
from elvis.models import Matcher
from elvis.ranking import DEFAULT_METHOD, ranking_model, remember_head
from elvis.store import Index, IndexCard


@dataclass(frozen=True, slots=True)
class Builder:
    """What an index is made with: taken from the index where there is one, else from the choices.

    Attributes:
        folder: of the index.
        card: of the index as it is or would be made.
        exists: whether the index is there already.
        extractor: describes the pictures.
        model: prepares the descriptors.
    """

    folder: Path
    card: IndexCard
    exists: bool
    extractor: Extractor
    model: Matcher

    @staticmethod
    def of(
        folder: str | Path,
        *,
        preset: str | None = None,
        settings: Mapping[str, Any] | None = None,
        method: str | None = None,
        head: str | Path | None = None,
        keep_raw: bool = False,
        store: str | None = None,
        device: str = "cpu",
        batch_size: int | None = None,
    ) -> Builder:
        """Loads backbone and model for an index.

        Args:
            folder: of the index; it need not exist.
            preset: a name in `PRESETS`, for a new index.
            settings: fields of `ExtractionSettings` that differ from the preset.
            method: that the descriptors are prepared for; None: `elvis` with a head, else the default.
            head: folder or hub name of a trained head.
            keep_raw: keep raw descriptors too, so that any method or head works later.
            store: how descriptors are stored: float16, or int8 in half the space; None: float16 for a new index.
            device: where to compute.
            batch_size: pictures computed together; None: see `Extractor`.

        Raises:
            IndexMismatch: the index was made with other choices.
        """
        before = _card_of(folder)
        if before is None:
            extraction = None
            standardise = True
        else:
            if preset is not None:
                raise IndexMismatch(
                    f"{folder} exists and keeps its settings: leave the preset out, or name a new folder"
                )
            if keep_raw and not before.keep_raw:
                raise IndexMismatch(f"{folder} was made without --keep-raw: index the pictures into a new folder")
            extraction = replace(ExtractionSettings.from_dict(before.extraction), **(settings or {}))
            standardise = bool(before.model_settings.get("standardise", True))
            method = method or before.model
            head = head or before.model_settings.get("head")
            keep_raw = before.keep_raw
            store = store or before.descriptor_dtype
        method = method or ("elvis" if head else DEFAULT_METHOD)
        model = ranking_model(method, head, standardise=standardise)
        if extraction is None:
            extraction = replace(extraction_for(preset, model), **(settings or {}))
        extractor = Extractor(extraction, device=device, batch_size=batch_size)
        card = remember_head(card_for(extractor, model, keep_raw=keep_raw, store=store or "float16"), head)
        if before is not None:
            before.check(card, str(folder))
        return Builder(Path(folder), before or card, before is not None, extractor, model)

    def open(self) -> Index:
        """The index, made where it was not there, open for writing."""
        return Index.open(self.folder, writable=True) if self.exists else Index.create(self.folder, self.card)


def index_pictures(places: Iterable[str | Path], folder: str | Path, **choices: Any) -> Index:
    """Puts pictures into an index, or brings it up to date, and opens it for searching.

    What could not be indexed is logged; `elvis.indexing.add_pictures` reports it.

    Args:
        places: files and folders.
        folder: of the index; made where it does not exist.
        choices: those of `Builder.of`: preset, settings, method, head, keep_raw, store, device, batch_size.
    """
    builder = Builder.of(folder, **choices)
    with builder.open() as index:
        add_pictures(index, places, builder.extractor, builder.model)
    return Index.open(folder)


def _card_of(folder: str | Path) -> IndexCard | None:
    try:
        with Index.open(folder) as opened:
            return opened.card
    except IndexMissing:
        return None


def extraction_for(preset: str | None, model: Matcher) -> ExtractionSettings:
    """For a new index: the preset that was asked for, else what the head was trained with, else the default preset."""
    trained_with = getattr(model.config, "extraction", None)
    if preset is None and trained_with:
        return ExtractionSettings.from_dict(trained_with)
    return preset_settings(preset)


def preset_settings(name: str | None) -> ExtractionSettings:
    """Extraction settings of a preset; None is the default one."""
    if (name or DEFAULT_PRESET) not in PRESETS:
        raise UnknownName("preset", str(name), PRESETS)
    return PRESETS[name or DEFAULT_PRESET]
