"""The table of backbones: what each is, where it comes from, and how pictures are prepared for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

Colour = tuple[float, float, float]
"""One number each for red, green and blue."""

IMAGENET_MEAN: Colour = (0.485, 0.456, 0.406)
IMAGENET_STD: Colour = (0.229, 0.224, 0.225)
HALF: Colour = (0.5, 0.5, 0.5)


@dataclass(frozen=True, slots=True)
class Family:
    """What all checkpoints of one architecture share; `transformers` names it by `model_type` in config.json.

    Attributes:
        model_class: the class in `transformers` that loads it.
        mean, std: of the colours in [0, 1] that the backbone was trained with.
        longer_side: of the whole picture in pixels, as in the ELViS paper.
    """

    model_class: str
    mean: Colour
    std: Colour
    longer_side: int


FAMILIES: Mapping[str, Family] = {
    "dinov2": Family("Dinov2Model", IMAGENET_MEAN, IMAGENET_STD, 770),
    "dinov2_with_registers": Family("Dinov2WithRegistersModel", IMAGENET_MEAN, IMAGENET_STD, 770),
    "dinov3_vit": Family("DINOv3ViTModel", IMAGENET_MEAN, IMAGENET_STD, 768),
    "siglip": Family("SiglipVisionModel", HALF, HALF, 768),
    "siglip_vision_model": Family("SiglipVisionModel", HALF, HALF, 768),
}


@dataclass(frozen=True, slots=True)
class BackboneRecord:
    """One backbone that goes by a name.

    Attributes:
        name: as given to `--backbone`.
        hub: repository on the Hugging Face hub.
        family: key of `FAMILIES`.
        licence: of the weights.
        patch: side of a patch in pixels.
        longer_side: default for the whole picture in pixels.
        gated: whether its licence must be accepted on the hub before it can be downloaded.
        folder: where the package carries it; None for those that are downloaded.
        sha256: of the carried `model.safetensors`.
        used_by: where the paper uses it.
    """

    name: str
    hub: str
    family: str
    licence: str
    patch: int
    longer_side: int
    gated: bool = False
    folder: Path | None = None
    sha256: str | None = None
    used_by: str = ""


def _dinov2(name: str, size: str, registers: bool, used_by: str = "") -> BackboneRecord:
    hub = f"facebook/dinov2-with-registers-{size}" if registers else f"facebook/dinov2-{size}"
    family = "dinov2_with_registers" if registers else "dinov2"
    return BackboneRecord(name, hub, family, "Apache-2.0", 14, 770, used_by=used_by)


def _dinov3(name: str, size: str, used_by: str = "") -> BackboneRecord:
    hub = f"facebook/dinov3-{size}-pretrain-lvd1689m"
    return BackboneRecord(name, hub, "dinov3_vit", "DINOv3 License", 16, 768, gated=True, used_by=used_by)


def _siglip2(name: str, checkpoint: str, longer_side: int = 768, used_by: str = "") -> BackboneRecord:
    hub = f"google/siglip2-{checkpoint}"
    return BackboneRecord(name, hub, "siglip", "Apache-2.0", 16, longer_side, used_by=used_by)


BACKBONES: Mapping[str, BackboneRecord] = {
    record.name: record
    for record in (
        BackboneRecord(
            "dinov2-small",
            "facebook/dinov2-small",
            "dinov2",
            "Apache-2.0",
            14,
            518,
            folder=Path(__file__).parent.parent / "data" / "dinov2-small",
            sha256="8c9d4d3ea20b0b76e0271f5eb2d0a13cce4cd56cbfee0b8143cd563cb6b8b714",
        ),
        _dinov2("dinov2", "base", registers=True, used_by="all tables (DINOv2)"),
        _dinov2("dinov2-base", "base", registers=False),
        _dinov2("dinov2-large", "large", registers=False),
        _dinov2("dinov2-giant", "giant", registers=False),
        _dinov2("dinov2-reg-small", "small", registers=True),
        _dinov2("dinov2-reg-large", "large", registers=True),
        _dinov2("dinov2-reg-giant", "giant", registers=True),
        _dinov3("dinov3", "vitl16", used_by="all tables (DINOv3)"),
        _dinov3("dinov3-small", "vits16"),
        _dinov3("dinov3-small-plus", "vits16plus"),
        _dinov3("dinov3-base", "vitb16"),
        _dinov3("dinov3-huge-plus", "vith16plus"),
        _dinov3("dinov3-7b", "vit7b16"),
        _siglip2("siglip2", "so400m-patch16-512", used_by="all tables (SigLIP2)"),
        _siglip2("siglip2-base", "base-patch16-512"),
        _siglip2("siglip2-large", "large-patch16-512"),
        _siglip2("siglip2-giant", "giant-opt-patch16-384"),
    )
}
"""All backbones by name. Besides these, a folder with a checkpoint of a family above, or `owner/name` on the hub."""
