"""A backbone behind one small interface: pictures in, patch grid, attention cue and global vector out."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn

from elvis.backbones.checkpoint import checkpoint_sha256, find_checkpoint, read_config
from elvis.backbones.openvino_network import OpenVinoNetwork
from elvis.backbones.records import FAMILIES, BackboneRecord
from elvis.backbones.torch_network import Network, Passed, TorchNetwork
from elvis.errors import MissingExtra, UnknownName, WeightsError

ENGINES = ("torch", "openvino")
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
        patch: side of a patch in pixels.
        dim: length of a patch token.
        image_dim: length of the global vector.
        engine: what runs the network: a name in `ENGINES`.
        dtype: what it computes in.
        device: where it computes.
        sha256: of its checkpoint.
    """

    def __init__(
        self, network: Network, record: BackboneRecord, family: str, device: torch.device, sha256: str
    ) -> None:
        self.record, self.device, self.sha256 = record, device, sha256
        self.patch, self.engine, self.dtype = network.facts.patch, network.engine, network.dtype
        self.dim = self.image_dim = network.facts.dim
        self._network = network
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
        passed = self._network((pixels.to(self.device, torch.float32) - self._mean) / self._std)
        grid = passed.tokens[:, -rows * columns :].float().unflatten(1, (rows, columns))
        vector = nn.functional.normalize(passed.summary.float(), dim=1)
        if not bool(torch.isfinite(grid).all() and torch.isfinite(vector).all()):
            raise WeightsError(f"{self.record.name} overflows in {self.dtype}: use the precision bf16 or fp32")
        return Tokens(grid, self._attention(passed, rows * columns).unflatten(1, (rows, columns)), vector)

    def _attention(self, passed: Passed, patches: int) -> Tensor:
        """(B, patches) softmax of the summary's row only, averaged over heads."""
        if passed.pooling is not None:
            return passed.pooling[:, 0].float()
        assert passed.query is not None and passed.keys is not None  # noqa: PT018  of every network without pooling
        heads = self._network.facts.heads
        query = passed.query.float().unflatten(-1, (heads, -1))
        keys = passed.keys.float().unflatten(-1, (heads, -1)).transpose(1, 2)
        if passed.rotation is not None:
            # DINOv3 turns the keys of patches by their position; class and register tokens are left as they are.
            cos, sin = (part.float() for part in passed.rotation)
            before, turned = keys[:, :, :-patches], keys[:, :, -patches:]
            first, second = turned.chunk(2, dim=-1)
            turned = turned * cos + torch.cat([-second, first], dim=-1) * sin
            keys = torch.cat([before, turned], dim=2)
        logits = (keys @ query[..., None])[..., 0] * query.shape[-1] ** -0.5
        return logits.softmax(dim=-1).mean(dim=1)[:, -patches:]


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


def resolve_engine(engine: str, device: torch.device | str, precision: str) -> str:
    """What runs the network; `auto` is OpenVINO on a CPU where its package is installed, else torch.

    Example:
        >>> resolve_engine("auto", "cuda", "auto")
        'torch'
    """
    if engine not in ("auto", *ENGINES):
        raise UnknownName("engine", engine, ["auto", *ENGINES])
    fits = torch.device(device).type == "cpu" and precision != "fp16"
    if engine == "auto":
        return "openvino" if fits and find_spec("openvino") is not None else "torch"
    if engine == "openvino" and not fits:
        raise ValueError(f"engine: openvino runs on a CPU in bf16 or fp32, asked for is {device} and {precision}")
    if engine == "openvino" and find_spec("openvino") is None:
        raise MissingExtra("openvino", "openvino")
    return engine


def load_backbone(
    name: str | Path,
    *,
    block: int = -1,
    device: str | torch.device = "cpu",
    precision: str = "auto",
    engine: str = "torch",
) -> Backbone:
    """Load a backbone by name, from a folder or from the hub.

    Args:
        name: a name in `BACKBONES`, a folder with a `transformers` checkpoint, or `owner/name` on the hub.
        block: whose tokens it gives, counted from the end: -1 is the last.
        device: as torch names it.
        precision: auto, fp32, bf16 or fp16.
        engine: torch, openvino, or auto: see `resolve_engine`.

    Example:
        >>> backbone = load_backbone("dinov2-small", block=-2)
        >>> tokens = backbone(torch.zeros(1, 3, 28, 42))
        >>> tokens.grid.shape, tokens.attention.shape, tokens.image_vector.shape
        (torch.Size([1, 2, 3, 384]), torch.Size([1, 2, 3]), torch.Size([1, 384]))
    """
    dtype, engine = resolve_precision(precision, device), resolve_engine(engine, device, precision)
    folder, record = find_checkpoint(name)
    family = read_config(folder)["model_type"]
    sha256, device = checkpoint_sha256(folder), torch.device(device)
    network = (
        OpenVinoNetwork(folder, sha256, family, block, dtype)
        if engine == "openvino"
        else TorchNetwork(folder, family, block, dtype, device)
    )
    return Backbone(network, record, family, device, sha256)
