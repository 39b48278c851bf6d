"""Every setting of a training run, and the named recipes."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from elvis.errors import TrainingError, UnknownName
from elvis.extract import ExtractionSettings
from elvis.models import ElvisConfig


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """How a head is trained; saved with every checkpoint and head. The defaults are the published recipe.

    Attributes:
        epochs: passes over the valid anchors, whose last batch may be smaller; None: `steps` counts.
        steps: optimiser steps of full batches; None: `epochs` counts.
        seed: everything drawn at a step follows from seed and step alone, so that a run can be resumed anywhere.
        data_seed: of the augmented views, and of what is held out and asked in validation: runs that differ in `seed`
            alone share them, and so the descriptors on disk.
        triplets: anchors a step, over all processes together.
        augmented_share: of them, how many have an augmented view of the same picture as positive, in [0, 1].
        views: augmented views of each picture, extracted once.
        neighbours: nearest pictures by global vector from which positives and negatives are drawn.
        min_positives: right pictures among them that make an anchor valid; on small data 1.
        min_negatives: the same for wrong ones.
        sharpness: they are drawn with probability proportional to similarity to this power.
        loss: `bce` on one positive and one negative pair an anchor, or `listwise`: softmax over the positive, the
            mined negative and `batch_negatives`.
        batch_negatives: pictures of other triplets that each anchor meets too; only for `listwise`.
        descriptors: smallest and largest number of descriptors a picture, both possible; one number is drawn a step
            for the anchors and one for all others.
        descriptor_choice: `strongest` first (published), or `random` among all that were kept.
        style_jitter: k; each channel of a picture is multiplied by exp(k·N(0,1)), and k·deviation·N(0,1) is added.
        style_share: of pictures that this happens to, in [0, 1].
        lr: largest learning rate.
        projection_lr: the same for the projection; None: `lr`.
        weight_decay: of AdamW, for every parameter.
        warmup: share of the steps in which the rate rises linearly from `warmup_start`; then it falls as a cosine to 0.
        warmup_start: as a fraction of the rate.
        clip: largest norm of the gradient; None: unlimited.
        precision: `fp32`, or `bf16`: projection and gains under autocast.
        projection_start: `xavier` (published), or `whitened`: principal components of the training descriptors.
        vote_start: `xavier` (published), or `affine`: f starts as sigmoid(5(t − 0.4)).
        holdout: share of the objects kept out for validation, in [0, 1); 0 keeps the last head, unvalidated.
        validate_every: steps between validations.
        validation_queries: at most so many queries.
        validation_depth: of the shortlist that is re-ranked.
        validation_descriptors: strongest descriptors a picture.
        checkpoint_every: steps between checkpoints.
        head: settings of `ElvisConfig` other than `input_dim`.
        extraction: how pictures become descriptors.

    Example:
        >>> PRESETS["small"].steps, PRESETS["published"].epochs
        (400, 10)
        >>> TrainConfig(lr=0)
        Traceback (most recent call last):
        ...
        ValueError: lr: expected a number above 0, got 0
    """

    epochs: int | None = 10
    steps: int | None = None
    seed: int = 0
    data_seed: int = 0
    triplets: int = 200
    augmented_share: float = 0.0
    views: int = 0
    neighbours: int = 300
    min_positives: int = 5
    min_negatives: int = 5
    sharpness: float = 3.0
    loss: Literal["bce", "listwise"] = "bce"
    batch_negatives: int = 4
    descriptors: tuple[int, int] = (100, 399)  # the published code draws below 400
    descriptor_choice: Literal["strongest", "random"] = "strongest"
    style_jitter: float = 0.0
    style_share: float = 0.7
    lr: float = 5e-4
    projection_lr: float | None = None
    weight_decay: float = 5e-4
    warmup: float = 0.1
    warmup_start: float = 1 / 3
    clip: float | None = None
    precision: Literal["fp32", "bf16"] = "fp32"
    projection_start: Literal["xavier", "whitened"] = "xavier"
    vote_start: Literal["xavier", "affine"] = "xavier"
    holdout: float = 0.2
    validate_every: int = 50
    validation_queries: int = 100
    validation_depth: int = 100
    validation_descriptors: int = 200
    checkpoint_every: int = 50
    head: Mapping[str, Any] = field(default_factory=dict[str, Any])
    extraction: ExtractionSettings = field(default_factory=ExtractionSettings)

    def __post_init__(self) -> None:
        if (self.epochs is None) == (self.steps is None):
            raise ValueError(f"epochs and steps: expected one of them, got {self.epochs} and {self.steps}")
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name}: expected a number above 0, got {value}")
        for name in _NOT_NEGATIVE:
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: expected a number of at least 0, got {getattr(self, name)}")
        self._check_shares_and_choices()
        object.__setattr__(self, "descriptors", tuple(self.descriptors))
        if len(self.descriptors) != 2 or not 1 <= self.descriptors[0] <= self.descriptors[1]:
            raise ValueError(f"descriptors: expected smallest and largest number, got {self.descriptors}")
        if self.augmented_share > 0 and self.views < 1:
            raise ValueError("views: expected at least 1 where augmented_share is above 0, got 0")
        if "input_dim" in self.head:
            raise ValueError("head: expected no input_dim, which the descriptors decide")
        head = self.head_config(384)  # refuses unknown or wrong settings
        if self.vote_start == "affine" and (head.vote_layernorm or not head.vote):
            raise ValueError("vote_start: affine needs a head with vote and without vote_layernorm")
        if self.projection_start == "whitened" and not head.projection:
            raise ValueError("projection_start: whitened needs a head with a projection")

    def _check_shares_and_choices(self) -> None:
        for name in ("augmented_share", "style_share", "warmup", "warmup_start"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}: expected a share in [0, 1], got {getattr(self, name)}")
        if not 0 <= self.holdout < 1:
            raise ValueError(f"holdout: expected a share in [0, 1), got {self.holdout}")
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise ValueError(f"{name}: expected one of {', '.join(known)}, got {getattr(self, name)!r}")

    def head_config(self, input_dim: int, card: Mapping[str, Any] | None = None) -> ElvisConfig:
        """Settings of the head that is trained on descriptors with so many channels."""
        known = {each.name for each in fields(ElvisConfig)}
        if unknown := sorted(set(self.head) - known):
            raise UnknownName("head setting", unknown[0], known)
        settings = dict(self.head)
        if not settings.get("projection", True):
            settings["dim"] = input_dim
        settings.setdefault("descriptors", self.extraction.descriptors)
        settings["extraction"] = self.extraction.to_dict()
        if card is not None:
            settings["card"] = dict(card)
        return ElvisConfig(input_dim=input_dim, **settings)

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain JSON values."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return values | {
            "descriptors": list(self.descriptors),
            "head": dict(self.head),
            "extraction": asdict(self.extraction),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainConfig:
        """Settings from `to_dict`; an unknown key is an error.

        Example:
            >>> TrainConfig.from_dict(PRESETS["small"].to_dict()) == PRESETS["small"]
            True
        """
        return cls().changed(values)

    def changed(self, values: Mapping[str, Any]) -> TrainConfig:
        """The same with other values, those of `head` and `extraction` one by one.

        Setting `steps` takes `epochs` out, and the other way round.

        Example:
            >>> TrainConfig().changed({"steps": 5, "head": {"dim": 64}}).epochs is None
            True
        """
        known = {each.name for each in fields(self)}
        if unknown := sorted(set(values) - known):
            raise UnknownName("training setting", unknown[0], known)
        new = dict(values)
        for one, other in (("steps", "epochs"), ("epochs", "steps")):
            if new.get(one) is not None and other not in new:
                new[other] = None
        for name in ("head", "extraction"):
            if name in new and not isinstance(new[name], Mapping):
                raise ValueError(f"{name}: expected a table of settings, got {new[name]!r}")
        if "head" in new:
            new["head"] = {**self.head, **new["head"]}
        if "extraction" in new:
            new["extraction"] = ExtractionSettings.from_dict({**self.extraction.to_dict(), **new["extraction"]})
        try:
            return replace(self, **new)
        except TypeError as error:  # a comparison of values of the wrong kind, from a TOML file
            raise ValueError(f"training settings: {error}") from error


_POSITIVE = (
    "epochs",
    "steps",
    "triplets",
    "neighbours",
    "min_positives",
    "min_negatives",
    "lr",
    "projection_lr",
    "clip",
    "validate_every",
    "validation_queries",
    "validation_depth",
    "validation_descriptors",
    "checkpoint_every",
)
_NOT_NEGATIVE = ("seed", "data_seed", "views", "sharpness", "batch_negatives", "style_jitter", "weight_decay")
_CHOICES = {
    "loss": ("bce", "listwise"),
    "descriptor_choice": ("strongest", "random"),
    "precision": ("fp32", "bf16"),
    "projection_start": ("xavier", "whitened"),
    "vote_start": ("xavier", "affine"),
}

_SMALL = TrainConfig(
    epochs=None,
    steps=400,
    triplets=28,
    augmented_share=0.5,
    views=3,
    min_positives=1,
    min_negatives=1,
    loss="listwise",
    descriptors=(32, 128),
    descriptor_choice="random",
    style_jitter=1.0,
    lr=2e-3,
    projection_lr=3e-4,
    projection_start="whitened",
    vote_start="affine",
    validate_every=100,
    head={"vote_layernorm": False, "calibrate": "affine"},
)

PRESETS: Mapping[str, TrainConfig] = MappingProxyType(
    {
        "published": TrainConfig(),
        "small": _SMALL,
        "fine-tune": _SMALL.changed({"steps": 200, "lr": 5e-4, "projection_lr": 1e-4}),
    }
)
"""Recipes by name. `small` is for up to some ten thousand pictures, `fine-tune` starts from a trained head."""


def preset(name: str) -> TrainConfig:
    """A recipe by name.

    Example:
        >>> preset("tiny")
        Traceback (most recent call last):
        ...
        elvis.errors.UnknownName: unknown training preset 'tiny': choose one of fine-tune, published, small
    """
    if name not in PRESETS:
        raise UnknownName("training preset", name, PRESETS)
    return PRESETS[name]


def read_config(file: str | Path, base: TrainConfig) -> TrainConfig:
    """A recipe from a TOML file; what it leaves out is as in its `preset`, or in `base` where it names none."""
    file = Path(file)
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise TrainingError(f"{file} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TrainingError(f"{file} is no TOML file: {error}") from error
    name = values.pop("preset", None)
    return (base if name is None else preset(str(name))).changed(values)
