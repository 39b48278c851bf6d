"""A backbone behind one small interface: pictures in, patch grid, attention cue and global vector out."""

from __future__ import annotations

import logging
import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from elvis.backbones.checkpoint import checkpoint_sha256, find_checkpoint, read_config
from elvis.backbones.records import FAMILIES, BackboneRecord
from elvis.errors import WeightsError
from elvis.image_files import shown

logger = logging.getLogger(__name__)

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""What the backbone computes in; `auto` takes bf16 where the processor has units for it, else fp32."""


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """What a backbone says about B pictures of one size, in float32.

    Attributes:
        grid: (B, h, w, D) patch tokens of the block asked for, not L2-normalised.
        attention: (B, h, w) how much the backbone's summary of the picture attends to each patch, in [0, 1].
        image_vector: (B, G) global vector, L2-normalised.
    """

    grid: Tensor
    attention: Tensor
    image_vector: Tensor


class Backbone:
    """A loaded backbone; `load_backbone` makes one.

    Attributes:
        record: what it is and where it comes from.
        block: whose tokens it gives, counted from the end: -1 is the last.
        patch: side of a patch in pixels.
        dim: length of a patch token.
        image_dim: length of the global vector.
        dtype: what it computes in.
        device: where it computes.
        sha256: of its checkpoint.
    """

    def __init__(
        self, network: nn.Module, record: BackboneRecord, family: str, block: int, device: torch.device, sha256: str
    ) -> None:
        config: Any = network.config
        blocks = config.num_hidden_layers
        if not -blocks <= block <= -1:
            raise ValueError(f"block: expected -1 (the last) to -{blocks} (the first), got {block}")
        self.record, self.block, self.device, self.sha256 = record, block, device, sha256
        self.patch: int = config.patch_size
        self.dim: int = config.hidden_size
        self.image_dim: int = config.hidden_size
        self.dtype: torch.dtype = next(network.parameters()).dtype
        self._network, self._heads = network, config.num_attention_heads
        self._layer = _layers(network, blocks)[block]
        # Older transformers 5.x wrap SigLIP's vision tower once more.
        self._trunk: nn.Module = getattr(network, "vision_model", network)
        self._pooled = FAMILIES[family].model_class == "SiglipVisionModel"
        self._mean = torch.tensor(FAMILIES[family].mean, device=device)[:, None, None]
        self._std = torch.tensor(FAMILIES[family].std, device=device)[:, None, None]

    @torch.inference_mode()
    def __call__(self, pixels: Tensor) -> Tokens:
        """Tokens of (B, 3, H, W) RGB pixels, black 0 and white 1; H and W are multiples of `patch`.

        The last block comes through the backbone's final normalisation, earlier ones as they are. On the
        second-to-last block of DINOv2-small raw matching is then better on average (mAP 82.4 against 79.9; it
        gains on products and a walk, loses on fixed cameras); once channels are standardised it is the same.

        The attention cue is that of the class token in the same block, averaged over heads; of a backbone
        without class token (SigLIP2) that of its attention pooling.
        """
        if pixels.ndim != 4 or pixels.shape[1] != 3 or any(side % self.patch or not side for side in pixels.shape[2:]):
            raise ValueError(
                f"pixels: expected (B, 3, H, W) with sides in multiples of {self.patch}, got {tuple(pixels.shape)}"
            )
        rows, columns = (side // self.patch for side in pixels.shape[2:])
        pixels = ((pixels.to(self.device, torch.float32) - self._mean) / self._std).to(self.dtype)
        options = {"interpolate_pos_encoding": True} if self._pooled else {}
        with self._watched() as seen:
            output = self._network(pixel_values=pixels, **options)
        tokens = output.last_hidden_state if self.block == -1 else seen["tokens"]
        grid = tokens[:, -rows * columns :].float().unflatten(1, (rows, columns))
        attention = seen["pooling"][:, 0] if self._pooled else self._class_attention(seen, rows * columns)
        vector = nn.functional.normalize(output.pooler_output.float(), dim=1)
        if not bool(torch.isfinite(grid).all() and torch.isfinite(vector).all()):
            raise WeightsError(f"{self.record.name} overflows in {self.dtype}: use the precision bf16 or fp32")
        return Tokens(grid, attention.float().unflatten(1, (rows, columns)), vector)

    @contextmanager
    def _watched(self) -> Generator[dict[str, Any]]:
        """Collects what the block asked for passes on; asking for all attentions would force a slow path."""
        seen: dict[str, Any] = {}

        def tokens(_: nn.Module, __: Any, output: Any) -> None:
            seen["tokens"] = output[0] if isinstance(output, tuple) else output

        def rotation(_: nn.Module, __: Any, named: dict[str, Any]) -> None:
            seen["rotation"] = named.get("position_embeddings")

        def output_as(name: str, part: int | None = None) -> Any:
            def keep(_: nn.Module, __: Any, output: Any) -> None:
                seen[name] = output if part is None else output[part]

            return keep

        handles = [self._layer.register_forward_hook(tokens)]
        if self._pooled:
            pooling = self._trunk.get_submodule("head.attention")
            handles.append(pooling.register_forward_hook(output_as("pooling", 1)))
        else:
            attention = self._layer.get_submodule("attention")
            handles.append(attention.register_forward_pre_hook(rotation, with_kwargs=True))
            for name, module in attention.named_modules():
                if match := re.search(r"(?:^|\.)(?:(q)_proj|(k)_proj|(q)uery|(k)ey)$", name):
                    handles.append(module.register_forward_hook(output_as(match[match.lastindex or 0])))
        try:
            yield seen
        finally:
            for handle in handles:
                handle.remove()

    def _class_attention(self, seen: dict[str, Any], patches: int) -> Tensor:
        """(B, patches) softmax of the class token's row only, averaged over heads."""
        query = seen["q"][:, 0].float().unflatten(-1, (self._heads, -1))
        keys = seen["k"].float().unflatten(-1, (self._heads, -1)).transpose(1, 2)
        if seen["rotation"] is not None:
            # DINOv3 turns the keys of patches by their position; class and register tokens are left as they are.
            cos, sin = (part.float() for part in seen["rotation"])
            before, turned = keys[:, :, :-patches], keys[:, :, -patches:]
            first, second = turned.chunk(2, dim=-1)
            turned = turned * cos + torch.cat([-second, first], dim=-1) * sin
            keys = torch.cat([before, turned], dim=2)
        logits = (keys @ query[..., None])[..., 0] * query.shape[-1] ** -0.5
        return logits.softmax(dim=-1).mean(dim=1)[:, -patches:]


def _layers(network: nn.Module, blocks: int) -> nn.ModuleList:
    for name, module in network.named_modules():
        if isinstance(module, nn.ModuleList) and name.split(".")[-1] in ("layer", "layers") and len(module) == blocks:
            return module
    raise WeightsError(f"{type(network).__name__} of this transformers version is built otherwise: install 5.x")


def resolve_precision(precision: str, device: torch.device | str) -> torch.dtype:
    """What to compute in; `auto` is bf16 where the device has units for it, else fp32.

    Example:
        >>> resolve_precision("fp32", "cpu")
        torch.float32
    """
    if precision in PRECISIONS:
        return PRECISIONS[precision]
    if precision != "auto":
        raise ValueError(f"precision: expected auto, {', '.join(PRECISIONS)}, got {precision!r}")
    kind = torch.device(device).type
    if kind == "cuda":
        fast = torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        fast = kind == "cpu" and _cpu_has_bf16()
    return torch.bfloat16 if fast else torch.float32


def _cpu_has_bf16() -> bool:
    if hasattr(torch.cpu, "get_capabilities"):
        able = torch.cpu.get_capabilities()
        return bool(able.get("avx512_bf16") or able.get("amx_bf16"))
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False  # not Linux: torch without get_capabilities cannot tell
    return "avx512_bf16" in flags or "amx_bf16" in flags


def load_backbone(
    name: str | Path, *, block: int = -1, device: str | torch.device = "cpu", precision: str = "auto"
) -> Backbone:
    """Load a backbone by name, from a folder or from the hub.

    Args:
        name: a name in `BACKBONES`, a folder with a `transformers` checkpoint, or `owner/name` on the hub.
        block: whose tokens it gives, counted from the end: -1 is the last.
        device: as torch names it.
        precision: auto, fp32, bf16 or fp16.

    Example:
        >>> backbone = load_backbone("dinov2-small", block=-2)
        >>> tokens = backbone(torch.zeros(1, 3, 28, 42))
        >>> tokens.grid.shape, tokens.attention.shape, tokens.image_vector.shape
        (torch.Size([1, 2, 3, 384]), torch.Size([1, 2, 3]), torch.Size([1, 384]))
    """
    dtype = resolve_precision(precision, device)
    folder, record = find_checkpoint(name)
    family = read_config(folder)["model_type"]
    sha256 = checkpoint_sha256(folder)
    network = _load_network(folder, FAMILIES[family].model_class, dtype)
    try:
        network = network.to(device)
    except (RuntimeError, AssertionError) as error:
        reason = shown(str(error).partition("\n")[0])
        raise ValueError(f"device: expected one this machine has, got {str(device)!r} ({reason})") from error
    return Backbone(network.eval().requires_grad_(False), record, family, block, torch.device(device), sha256)


def _load_network(folder: Path, model_class: str, dtype: torch.dtype) -> nn.Module:
    import transformers
    from safetensors import SafetensorError

    place = shown(folder)
    try:
        with _quiet():
            network, report = getattr(transformers, model_class).from_pretrained(
                folder,
                dtype=dtype,
                use_safetensors=True,
                local_files_only=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # reported below in one line
            )
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        reason = shown(" ".join(str(error).split()))[:200]
        raise WeightsError(f"{place} is damaged or no {model_class}: {reason}; get its files again") from error
    # Whatever is missing would have been filled with random numbers.
    unfit = {name for name in report["missing_keys"] if not name.endswith("mask_token")}
    unfit |= {name for name, *_ in report["mismatched_keys"]}
    if unfit:
        raise WeightsError(
            f"{place} is no complete {model_class}: {len(unfit)} weights are missing or of another size, "
            f"as {min(unfit)}; get its files again"
        )
    if model_class == "SiglipVisionModel" and not getattr(network.config, "vision_use_head", True):
        raise WeightsError(f"{place} has no attention pooling, which gives the global vector: use a full checkpoint")
    return network


@contextmanager
def _quiet() -> Generator[None]:
    """No progress bar and load report on stderr; what others had set is put back."""
    from transformers.utils import logging as noise

    level, bars = noise.get_verbosity(), noise.is_progress_bar_enabled()
    noise.set_verbosity_error()
    noise.disable_progress_bar()
    try:
        yield
    finally:
        noise.set_verbosity(level)
        if bars:
            noise.enable_progress_bar()
