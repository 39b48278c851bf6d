"""The card of an index: how it was made, so that nothing else is ever mixed into it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from elvis.errors import IndexDamaged, IndexMismatch, UnknownName

SCHEMA = 2
"""Latest version of the layout on disk that this release writes and reads."""
SCHEMAS = {"float16": 1, "int8": 2}
"""How descriptors are stored → the version of the layout that came with it: older releases refuse what they cannot \
read, and read all else."""

REBUILD = "index the pictures again into a new folder: elvis index PICTURES --index NEW"


@dataclass(frozen=True, slots=True)
class IndexCard:
    """What an index holds and what made it.

    Attributes:
        extraction: settings of the extractor, as plain values.
        extraction_fingerprint: names settings and weights of the extractor.
        model: name of the model whose prepared descriptors are kept.
        model_settings: its settings, as plain values.
        model_fingerprint: names settings and weights of the model: prepared descriptors fit an equal one only.
        dim: channels of the prepared descriptors.
        image_dim: length of the global vector.
        keep_raw: whether the descriptors are kept as the extractor gave them too.
        descriptor_dtype: how vectors of prepared descriptors are stored: float16, or int8 in half the space; raw ones
            are float16 always.
        schema: version of the layout on disk; follows from `descriptor_dtype`.
        created: when, ISO 8601 in UTC.
        library: version of the library that made it.

    Example:
        >>> IndexCard({}, "a1", "chamfer-ot", {}, "b2", dim=384, image_dim=384).schema
        1
    """

    extraction: dict[str, Any]
    extraction_fingerprint: str
    model: str
    model_settings: dict[str, Any]
    model_fingerprint: str
    dim: int
    image_dim: int
    keep_raw: bool = False
    descriptor_dtype: str = "float16"
    schema: int = field(init=False)
    created: str = ""
    library: str = field(default="")

    def __post_init__(self) -> None:
        if self.descriptor_dtype not in SCHEMAS:
            raise UnknownName("descriptor dtype", self.descriptor_dtype, SCHEMAS)
        object.__setattr__(self, "schema", SCHEMAS[self.descriptor_dtype])

    def to_json(self) -> dict[str, Any]:
        """Plain values that JSON can hold."""
        return asdict(self)

    @staticmethod
    def from_json(content: dict[str, Any], place: str) -> IndexCard:
        """The card in plain values.

        Raises:
            IndexMismatch: a later release wrote it.
            IndexDamaged: an entry is missing.
        """
        schema = content.get("schema")
        if not isinstance(schema, int) or schema > SCHEMA:
            raise IndexMismatch(
                f"{place} has schema {schema}, this release reads up to {SCHEMA}: upgrade elvis-retrieval"
            )
        names = {each.name for each in fields(IndexCard)}
        if missing := names - content.keys():
            raise IndexDamaged(f"{place}: its card lacks {', '.join(sorted(missing))}: {REBUILD}")
        if SCHEMAS.get(content["descriptor_dtype"]) != schema:
            raise IndexDamaged(
                f"{place}: its card says schema {schema} and {content['descriptor_dtype']}, which do not go together: "
                f"{REBUILD}"
            )
        return IndexCard(**{name: content[name] for name in names - {"schema"}})

    def check(self, other: IndexCard, place: str) -> None:
        """Refuses to go on where `other`, what the caller brings, does not fit this index.

        Raises:
            IndexMismatch: one line with what differs on both sides and what to do.

        Example:
            >>> card = IndexCard({"block": 11}, "a1", "chamfer-ot", {}, "b2", dim=384, image_dim=384)
            >>> card.check(IndexCard({"block": 12}, "a2", "chamfer-ot", {}, "b2", dim=384, image_dim=384), "pets")
            Traceback (most recent call last):
            ...
            elvis.errors.IndexMismatch: pets was made with block=11, asked for is block=12: use the settings of the \
index, or index the pictures again into a new folder: elvis index PICTURES --index NEW
        """
        self.check_extraction(other.extraction_fingerprint, other.extraction, place)
        self.check_model(other.model, other.model_settings, other.model_fingerprint, place)
        for name in ("dim", "image_dim", "keep_raw", "descriptor_dtype"):
            here, there = getattr(self, name), getattr(other, name)
            if here != there:
                raise IndexMismatch(f"{place} was made with {name}={here}, asked for is {name}={there}: {REBUILD}")

    def check_extraction(self, fingerprint: str, settings: dict[str, Any], place: str) -> None:
        """Refuses an extractor whose descriptors do not fit those of this index.

        Raises:
            IndexMismatch: one line with what differs on both sides and what to do.
        """
        if self.extraction_fingerprint == fingerprint:
            return
        here, there = _difference(self.extraction, settings)
        raise IndexMismatch(
            f"{place} was made with {here or 'extractor ' + self.extraction_fingerprint[:12]}, asked for is "
            f"{there or 'extractor ' + fingerprint[:12]}: use the settings of the index, or {REBUILD}"
        )

    def check_model(self, name: str, settings: dict[str, Any], fingerprint: str, place: str) -> None:
        """Refuses a model that does not fit the prepared descriptors of this index.

        Raises:
            IndexMismatch: one line with both models and what to do.
        """
        if self.model_fingerprint == fingerprint:
            return
        here, there = _difference(self.model_settings, settings)
        raise IndexMismatch(
            f"{place} holds descriptors prepared by {self.model} ({here or self.model_fingerprint[:12]}), asked for is "
            f"{name} ({there or fingerprint[:12]}): use the model of the index, or {REBUILD}"
        )


def _difference(here: dict[str, Any], there: dict[str, Any]) -> tuple[str, str]:
    names = sorted(name for name in {*here, *there} if here.get(name) != there.get(name))
    return tuple(", ".join(f"{name}={side.get(name)}" for name in names) for side in (here, there))  # pyright: ignore
