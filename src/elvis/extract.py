"""Pictures to descriptors: backbone, detector and positions in one road that indexing, search and training share."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Any, cast

import torch
from PIL import Image
from torch import Tensor

from elvis.backbones import PRECISIONS, Backbone, Tokens, load_backbone
from elvis.detector import SpatialAttention2d, load_detector, strength_by_both_cues, strongest
from elvis.errors import UnknownName, WeightsError
from elvis.images import Crop, crop_box, to_pixels
from elvis.values import Descriptors
from elvis.weights import file_sha256

Picture = Image.Image | tuple[Image.Image, Crop | None]
"""An upright RGB picture as `open_image` gives it, alone or with the part that is wanted."""

BOTH_CUES = "both-cues"

_REVISION = 2
"""Part of every fingerprint; raised when the same settings and weights begin to give other descriptors."""


@dataclass(frozen=True, slots=True)
class ExtractionSettings:
    """How pictures become descriptors; saved with every index and head.

    Attributes:
        backbone: a name in `BACKBONES`, a folder, or `owner/name` on the hub.
        block: whose tokens are the descriptors, counted from the end: -1 is the last.
        longer_side: of the whole picture in pixels; None is the backbone's default.
        descriptors: how many are kept at most.
        selection: `both-cues` (no training), or the path of a detector file.
        precision: auto, fp32, bf16 or fp16; close enough to each other to be mixed in one index.

    Example:
        >>> ExtractionSettings(descriptors=400).to_dict()["descriptors"]
        400
        >>> ExtractionSettings(descriptors=0)
        Traceback (most recent call last):
        ...
        ValueError: descriptors: expected at least 1, got 0
    """

    backbone: str = "dinov2-small"
    block: int = -2
    longer_side: int | None = None
    descriptors: int = 600
    selection: str = BOTH_CUES
    precision: str = "auto"

    def __post_init__(self) -> None:
        if self.descriptors < 1:
            raise ValueError(f"descriptors: expected at least 1, got {self.descriptors}")
        if self.longer_side is not None and self.longer_side < 1:
            raise ValueError(f"longer_side: expected at least 1 pixel, got {self.longer_side}")
        if self.block >= 0:
            raise ValueError(f"block: expected a place from the end such as -1 or -2, got {self.block}")

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ExtractionSettings:
        """Settings from `to_dict`; an unknown key is an error.

        Example:
            >>> settings = ExtractionSettings(longer_side=392)
            >>> ExtractionSettings.from_dict(settings.to_dict()) == settings
            True
        """
        known = {each.name for each in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise UnknownName("extraction setting", unknown[0], known)
        return cls(**values)


PRESETS: Mapping[str, ExtractionSettings] = {
    "fast": ExtractionSettings(longer_side=392, descriptors=300),
    "balanced": ExtractionSettings(),
    "accurate": ExtractionSettings(longer_side=700),
}
"""What `elvis index --preset` takes; their mAP and speed are in `docs/presets.md`."""
DEFAULT_PRESET = "balanced"


class Extractor:
    """Turns upright RGB pictures into descriptors, in order and in bounded memory.

    Args:
        settings: what to extract.
        device: as torch names it.
        batch_size: pictures computed together where their resized shapes are equal; None is 1 on a CPU, where
            more gains nothing, and 16 elsewhere. It never changes a result beyond rounding.
        engine: torch or openvino; auto is OpenVINO on a CPU where its package is installed. Descriptors of both are as
            close as those of different precisions: an index made with one is searched with the other.

    Attributes:
        settings: as given.
        dim: length of a descriptor.
        image_dim: length of the global vector.
        patch: side of a patch in pixels.
        longer_side: of a resized picture in pixels.
        backbone_sha256: of the backbone's checkpoint.
        engine: what runs the backbone.
        precision: what it computes in, with the engine unless that is torch; for the records of an evaluation.

    Example:
        >>> extractor = Extractor(ExtractionSettings(longer_side=56, descriptors=5))
        >>> one, = extractor.extract([Image.new("RGB", (64, 48), "red")])
        >>> one.vectors.shape, one.size.tolist(), one.image_vector.shape
        (torch.Size([1, 5, 384]), [[64, 48]], torch.Size([1, 384]))
    """

    def __init__(
        self,
        settings: ExtractionSettings | None = None,
        *,
        device: str | torch.device = "cpu",
        batch_size: int | None = None,
        engine: str = "auto",
    ) -> None:
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"batch_size: expected at least 1, got {batch_size}")
        self.settings = settings = settings or ExtractionSettings()
        self._detector, detector_sha256 = _detector(settings.selection)
        self._backbone: Backbone = load_backbone(
            settings.backbone, block=settings.block, device=device, precision=settings.precision, engine=engine
        )
        self.device = self._backbone.device
        self.dim, self.image_dim = self._backbone.dim, self._backbone.image_dim
        self.patch = self._backbone.patch
        self.longer_side = settings.longer_side or self._backbone.record.longer_side
        self.backbone_sha256 = self._backbone.sha256
        self.engine = self._backbone.engine
        computed_in = next(name for name, dtype in PRECISIONS.items() if dtype == self._backbone.dtype)
        self.precision = computed_in if self.engine == "torch" else f"{computed_in} by {self.engine}"
        self._batch_size = batch_size or (1 if self.device.type == "cpu" else 16)
        if self._detector is not None:
            expected = self._detector.conv1.in_channels
            if expected != self.dim:
                raise WeightsError(
                    f"{settings.selection} is a detector for descriptors of length {expected}, "
                    f"the backbone {settings.backbone} gives {self.dim}: use the detector made for it"
                )
            self._detector.to(self.device)
        self.fingerprint: str = self._fingerprint(detector_sha256)

    def _fingerprint(self, detector_sha256: str | None) -> str:
        # By content, not by name: a moved folder is the same backbone. Precision and engine are left out: an index
        # made with bf16 is to be searched from a machine that has none.
        made_of = {
            "revision": _REVISION,
            "backbone": self.backbone_sha256,
            "block": self.settings.block,
            "longer_side": self.longer_side,
            "descriptors": self.settings.descriptors,
            "selection": detector_sha256 or self.settings.selection,
        }
        return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()

    def extract(self, pictures: Iterable[Picture]) -> Iterator[Descriptors]:
        """Descriptors of each picture, strongest first, in the order of the pictures.

        Each has `vectors` (1, N, D) as the backbone gave them, not normalised, `xy`, `strength`, `size` and
        `image_vector`; N is `descriptors`, or the number of patches where a picture has fewer. Positions are
        fractions of the whole upright picture, also for a crop. No more than four batches are read ahead.
        """
        remaining = iter(pictures)
        ahead = 1 if self._batch_size == 1 else 4 * self._batch_size
        while window := [_with_crop(picture) for picture in islice(remaining, ahead)]:
            yield from self._extract_window(window)

    def _extract_window(self, window: list[tuple[Image.Image, Crop | None]]) -> Iterator[Descriptors]:
        pixels = [to_pixels(image, self.longer_side, self.patch, crop) for image, crop in window]
        by_shape: dict[torch.Size, list[int]] = {}
        for place, each in enumerate(pixels):
            by_shape.setdefault(each.shape, []).append(place)
        done: dict[int, Descriptors] = {}
        for places in by_shape.values():
            for start in range(0, len(places), self._batch_size):
                batch = places[start : start + self._batch_size]
                tokens = self._backbone(torch.stack([pixels[place] for place in batch]))
                strength = self._strength(tokens)
                keep = strongest(strength, self.settings.descriptors)
                for row, place in enumerate(batch):
                    done[place] = self._descriptors(tokens, strength, row, keep[row], *window[place])
        for place in range(len(window)):
            yield done.pop(place)

    def dense(self, picture: Picture) -> tuple[Descriptors, tuple[int, int]]:
        """All patches of one picture, row by row from the top left, and the grid's rows and columns.

        Example:
            >>> extractor = Extractor(ExtractionSettings(longer_side=56))
            >>> every, grid = extractor.dense(Image.new("RGB", (64, 48)))
            >>> every.vectors.shape, grid
            (torch.Size([1, 12, 384]), (3, 4))
        """
        image, crop = _with_crop(picture)
        tokens = self._backbone(to_pixels(image, self.longer_side, self.patch, crop)[None])
        strength = self._strength(tokens)
        _, rows, columns, _ = tokens.grid.shape
        every = torch.arange(rows * columns, device=strength.device)
        return self._descriptors(tokens, strength, 0, every, image, crop), (rows, columns)

    @torch.inference_mode()
    def _strength(self, tokens: Tokens) -> Tensor:
        if self._detector is None:
            return strength_by_both_cues(tokens.grid, tokens.attention)
        return self._detector(tokens.grid)

    @torch.inference_mode(False)
    def _descriptors(
        self, tokens: Tokens, strength: Tensor, row: int, keep: Tensor, image: Image.Image, crop: Crop | None
    ) -> Descriptors:
        # Clones: free of the batch's memory, and ordinary tensors that training may use.
        _, rows, columns, _ = tokens.grid.shape
        xy = patch_centres(image.size, (rows, columns), crop)
        return Descriptors(
            tokens.grid[row].flatten(0, 1)[keep].clone()[None],
            xy=xy.to(self.device)[keep][None],
            strength=strength[row][keep].clone()[None],
            size=torch.tensor([image.size], device=self.device),
            image_vector=tokens.image_vector[row].clone()[None],
        )


def patch_centres(size: tuple[int, int], grid: tuple[int, int], crop: Crop | None = None) -> Tensor:
    """(rows * columns, 2) centres of patches, row by row, as fractions x and y of the whole picture.

    Args:
        size: width and height of the upright picture in pixels.
        grid: rows and columns of patches that cover the picture, or its crop.
        crop: the part that they cover.

    Example:
        >>> patch_centres((100, 100), (1, 2), crop=(0.5, 0.0, 0.5, 0.5))
        tensor([[0.6250, 0.2500],
                [0.8750, 0.2500]])
    """
    left, top, right, bottom = crop_box(size, crop)
    rows, columns = grid
    x = (left + (torch.arange(columns) + 0.5) / columns * (right - left)) / size[0]
    y = (top + (torch.arange(rows) + 0.5) / rows * (bottom - top)) / size[1]
    return torch.stack([x.repeat(rows), y.repeat_interleave(columns)], dim=1)


def _with_crop(picture: Picture) -> tuple[Image.Image, Crop | None]:
    image, crop = picture if isinstance(picture, tuple) else (picture, None)
    if not isinstance(cast(object, image), Image.Image):
        raise TypeError(f"pictures: expected PIL images as open_image gives them, got {type(image).__name__}")
    return image, crop


def _detector(selection: str) -> tuple[SpatialAttention2d | None, str | None]:
    if selection == BOTH_CUES:
        return None, None
    if not Path(selection).is_file():
        raise UnknownName("selection", selection, [BOTH_CUES, "the path of a detector file"])
    return load_detector(selection), file_sha256(Path(selection))
