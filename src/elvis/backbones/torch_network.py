"""A checkpoint run by torch and `transformers`: the plain way, on any device, and the truth for the others."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from elvis.backbones.records import FAMILIES
from elvis.errors import WeightsError
from elvis.image_files import shown


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a network without running it.

    Attributes:
        blocks: how many it has.
        heads: of its attention.
        dim: length of a token.
        patch: side of a patch in pixels.
        pooled: whether it sums a picture up by attention pooling (SigLIP2) and not in a class token.
    """

    blocks: int
    heads: int
    dim: int
    patch: int
    pooled: bool


@dataclass(frozen=True, slots=True, eq=False)
class Passed:
    """What a network passed on for B pictures, in whatever it computes in; S tokens, class and registers first.

    Attributes:
        tokens: (B, S, D) of the block asked for.
        summary: (B, D) of the whole picture, of any length.
        query: (B, D) the class token's, in the attention of that block; None of a network that pools.
        keys: (B, S, D) likewise.
        rotation: cosines and sines by which the keys of patches are turned (DINOv3).
        pooling: (B, 1, S) weights of the attention pooling, only of a network that pools.
    """

    tokens: Tensor
    summary: Tensor
    query: Tensor | None = None
    keys: Tensor | None = None
    rotation: tuple[Tensor, Tensor] | None = None
    pooling: Tensor | None = None


class Network(Protocol):
    """What `Backbone` asks of a way to run a checkpoint.

    Attributes:
        engine: name of what runs it.
        facts: see `Facts`.
        dtype: what it really computes in.
    """

    engine: str
    facts: Facts
    dtype: torch.dtype

    def __call__(self, pixels: Tensor) -> Passed:
        """From (B, 3, H, W) normalised colours in float32."""
        ...


class TorchNetwork(nn.Module):
    """A network of `transformers` that tells what the block asked for passes on.

    Args:
        folder: of the checkpoint.
        family: key of `FAMILIES`.
        block: counted from the end.
        dtype: what to compute in.
        device: where to compute.
    """

    engine = "torch"

    def __init__(self, folder: Path, family: str, block: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        network = _load(folder, FAMILIES[family].model_class, dtype)
        try:
            network = network.to(device)
        except (RuntimeError, AssertionError) as error:
            reason = shown(str(error).partition("\n")[0])
            raise ValueError(f"device: expected one this machine has, got {str(device)!r} ({reason})") from error
        config: Any = network.config
        self.facts = Facts(
            config.num_hidden_layers,
            config.num_attention_heads,
            config.hidden_size,
            config.patch_size,
            FAMILIES[family].model_class == "SiglipVisionModel",
        )
        check_block(block, self.facts.blocks)
        self.network, self.block, self.dtype = network.eval().requires_grad_(False), block, dtype
        self._layer = [_layers(network, self.facts.blocks)[block]]  # in a list: not registered a second time

    def forward(self, pixels: Tensor) -> Passed:
        """See `Network`."""
        options = {"interpolate_pos_encoding": True} if self.facts.pooled else {}
        with self._watched() as seen:
            output = self.network(pixel_values=pixels.to(self.dtype), **options)
        return Passed(
            output.last_hidden_state if self.block == -1 else seen["tokens"],
            output.pooler_output,
            seen["q"][:, 0] if "q" in seen else None,
            seen.get("k"),
            seen.get("rotation"),
            seen.get("pooling"),
        )

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

        (layer,) = self._layer
        handles = [layer.register_forward_hook(tokens)]
        if self.facts.pooled:
            # Older transformers 5.x wrap SigLIP's vision tower once more.
            trunk: nn.Module = getattr(self.network, "vision_model", self.network)
            handles.append(trunk.get_submodule("head.attention").register_forward_hook(output_as("pooling", 1)))
        else:
            attention = layer.get_submodule("attention")
            handles.append(attention.register_forward_pre_hook(rotation, with_kwargs=True))
            for name, module in attention.named_modules():
                if match := re.search(r"(?:^|\.)(?:(q)_proj|(k)_proj|(q)uery|(k)ey)$", name):
                    handles.append(module.register_forward_hook(output_as(match[match.lastindex or 0])))
        try:
            yield seen
        finally:
            for handle in handles:
                handle.remove()


def check_block(block: int, blocks: int) -> None:
    """Refuse a block that a network of so many does not have."""
    if not -blocks <= block <= -1:
        raise ValueError(f"block: expected -1 (the last) to -{blocks} (the first), got {block}")


def _layers(network: nn.Module, blocks: int) -> nn.ModuleList:
    for name, module in network.named_modules():
        if isinstance(module, nn.ModuleList) and name.split(".")[-1] in ("layer", "layers") and len(module) == blocks:
            return module
    raise WeightsError(f"{type(network).__name__} of this transformers version is built otherwise: install 5.x")


def _load(folder: Path, model_class: str, dtype: torch.dtype) -> nn.Module:
    import transformers
    from safetensors import SafetensorError

    place = shown(folder)
    try:
        with quiet():
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
def quiet() -> Generator[None]:
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
