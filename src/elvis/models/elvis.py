"""ELViS, equation by equation in the paper's order.

Two pictures as sets of descriptors, M and N of them, D′ channels each:

    §3.1  projection       Q, X = L2(LayerNorm(W·x + bias))                           `projection`
          similarity       S = QᵀX                                                     `transport.similarity.cosines`
    (1)   dust-bins        Ŝ = [S u; vᵀ ω]                                             `transport.reference`
    (2)   transport        P = argmax ⟨P, Ŝ⟩ + λH(P), marginals a, b;  S′ = P[:M, :N]   `transport.reference`
    (3)   gains            u = h(q), v = h(x)                                          `gain_function`, `corner` (ω)
    (4)   strongest        s′_i = max_j S′_ij,  s′_j = max_i S′_ij                      `strengths`
    (5)   votes, sum       s(q, x) = Σ_i f(s′_i) + Σ_j f(s′_j)                          `vote_function`, `score`
    §3.3  training         BCE on g(s(q, x)); g is dropped afterwards                  `logits`, `calibration`
"""

# The hub mixin reads the annotation of `config` at run time: no postponed annotations in this file.

import hashlib
import json
import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from huggingface_hub import PyTorchModelHubMixin, hf_hub_download
from huggingface_hub.constants import SAFETENSORS_SINGLE_FILE
from safetensors.torch import load_file
from torch import Tensor, nn

from elvis import transport
from elvis.models.base import Matcher, standardised, unit_length
from elvis.transport import Strengths
from elvis.values import Descriptors
from elvis.weights import state_sha256


@dataclass(frozen=True, slots=True)
class ElvisConfig:
    """Settings of a head, saved with it. The defaults are those of the published code.

    Attributes:
        input_dim: D′, channels of the descriptors that come in.
        dim: D, channels after the projection.
        temperature: λ of the transport; where it is learned, its start.
        learn_temperature: learn log λ.
        rounds: of Sinkhorn.
        descriptors: M, strongest descriptors a picture at test time.
        standardise: standardise the channels of each picture before the projection.
        projection: False: raw unit vectors, D = D′ (ablation).
        dustbin: gain of staying unmatched: h of the descriptor, one learned scalar (ablation), or no dust-bins at all
            (ablation; needs equal numbers of descriptors in every pair).
        gain_tanh: h ends in Tanh (published code; not in the paper).
        vote: False: a vote is the strength itself (ablation "no f").
        vote_layernorm: LayerNorm between f's first layer and its GELU (published code; not in the paper).
        calibrate: what g sees in training: the `sum` of votes (published), 20·mean vote − 10 (`mean`, trains on
            small data), the same with a g that is only a factor and an offset (`affine`), or no g: the mean vote,
            clamped, is the probability (`none`, ablation).
        extraction: settings of the extraction that the head was trained with; empty: unknown.
        card: provenance for people: data, licence, figures.
    """

    input_dim: int = 768
    dim: int = 128
    temperature: float = 0.1
    learn_temperature: bool = False
    rounds: int = 10
    descriptors: int = 600
    standardise: bool = False
    projection: bool = True
    dustbin: Literal["descriptor", "scalar", "none"] = "descriptor"
    gain_tanh: bool = True
    vote: bool = True
    vote_layernorm: bool = True
    calibrate: Literal["sum", "mean", "affine", "none"] = "sum"
    extraction: dict[str, Any] = field(default_factory=dict[str, Any])
    card: dict[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        for name in ("input_dim", "dim", "rounds", "descriptors"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected at least 1, got {getattr(self, name)}")
        if not 0 < self.temperature < math.inf:
            raise ValueError(f"temperature: expected a number above 0, got {self.temperature}")
        if self.dustbin not in ("descriptor", "scalar", "none"):
            raise ValueError(f"dustbin: expected descriptor, scalar or none, got {self.dustbin!r}")
        if self.calibrate not in ("sum", "mean", "affine", "none"):
            raise ValueError(f"calibrate: expected sum, mean, affine or none, got {self.calibrate!r}")
        if not self.projection and self.dim != self.input_dim:
            raise ValueError(f"dim: without a projection expected input_dim = {self.input_dim}, got {self.dim}")


class Elvis(
    Matcher,
    PyTorchModelHubMixin,
    library_name="elvis",
    license="apache-2.0",
    pipeline_tag="image-feature-extraction",
    tags=["image-retrieval", "re-ranking", "optimal-transport"],
):
    """Strength of each match → vote (f in the paper) → total.

    `score` is the raw sum of votes in [0, M + N]; rank by it. Swapped pictures score slightly differently, as in the
    published code: ten rounds of transport end on the gallery's side.

    Example:
        >>> head = Elvis(ElvisConfig(input_dim=8, dim=4))
        >>> pictures = Descriptors(torch.randn(3, 5, 8))
        >>> head(pictures.select(0), pictures).shape
        torch.Size([3])
    """

    def __init__(self, config: ElvisConfig) -> None:
        super().__init__()
        self.config = config
        dim = config.dim
        self.projection = (
            nn.Sequential(nn.Linear(config.input_dim, dim), nn.LayerNorm(dim)) if config.projection else None
        )
        self.gain_function = _gain(config)
        self.corner = nn.Parameter(torch.ones(())) if config.dustbin != "none" else None
        self.log_temperature = (
            nn.Parameter(torch.tensor(math.log(config.temperature))) if config.learn_temperature else None
        )
        self.vote_function = _vote(config) if config.vote else None
        self.calibration = _calibration(config)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        if isinstance(self.calibration, nn.Linear):
            nn.init.ones_(self.calibration.weight)

    @classmethod
    def _from_pretrained(
        cls,
        *,
        model_id: str,
        config: ElvisConfig,
        revision: str | None = None,
        token: str | bool | None = None,
        cache_dir: str | Path | None = None,
        force_download: bool = False,
        local_files_only: bool = False,
        **_: Any,
    ) -> "Elvis":
        """Loads config and weights strictly; the mixin's own version prints, and lets missing weights pass."""
        if Path(model_id).is_dir():
            file = Path(model_id) / SAFETENSORS_SINGLE_FILE
        else:
            file = hf_hub_download(
                repo_id=model_id,
                filename=SAFETENSORS_SINGLE_FILE,
                revision=revision,
                token=token,
                cache_dir=cache_dir,
                force_download=force_download,
                local_files_only=local_files_only,
            )
        head = cls(config)
        head.load_state_dict(load_file(file), strict=True)
        return head

    @property
    def temperature(self) -> Tensor | float:
        """λ, a number or, where it is learned, a tensor with a gradient."""
        return self.config.temperature if self.log_temperature is None else self.log_temperature.exp()

    @property
    def summary(self) -> str:
        """One line for people."""
        config = self.config
        return f"D' = {config.input_dim}, D = {config.dim}, λ = {config.temperature:g}, {config.rounds} rounds"

    @property
    def fingerprint(self) -> str:
        """SHA-256 of settings and weights; provenance does not count."""
        settings = {k: v for k, v in asdict(self.config).items() if k not in ("extraction", "card")}
        text = json.dumps(settings, sort_keys=True) + state_sha256(self.state_dict())
        return hashlib.sha256(text.encode()).hexdigest()

    def prepare(self, descriptors: Descriptors) -> Descriptors:
        """Projection, unit length and dust-bin gain (3): D channels and `gain`."""
        if descriptors.vectors.shape[2] != self.config.input_dim:
            raise ValueError(
                f"vectors: expected {self.config.input_dim} channels as the head was trained with, got "
                f"{descriptors.vectors.shape[2]}"
            )
        dtype = next((parameter.dtype for parameter in self.parameters()), descriptors.vectors.dtype)
        descriptors = replace(descriptors, vectors=descriptors.vectors.to(dtype))
        if self.config.standardise:
            descriptors = standardised(descriptors)
        if self.projection is not None:
            descriptors = replace(descriptors, vectors=self.projection(descriptors.vectors))
        descriptors = unit_length(descriptors)
        return replace(descriptors, gain=self._gain(descriptors))

    def _gain(self, descriptors: Descriptors) -> Tensor | None:
        if self.gain_function is None:
            return None
        if isinstance(self.gain_function, nn.Parameter):
            return self.gain_function.expand(descriptors.mask.shape).masked_fill(~descriptors.mask, 0)
        return self.gain_function(descriptors.vectors)[:, :, 0].masked_fill(~descriptors.mask, 0)

    def strengths(self, query: Descriptors, gallery: Descriptors) -> Strengths:
        """Strongest refined similarity of each descriptor (4)."""
        return transport.strengths(
            *self._checked(query, gallery),
            self._corner,
            temperature=self.temperature,
            rounds=self.config.rounds,
        )

    def refine(self, query: Descriptors, gallery: Descriptors) -> Tensor:
        """S′ of (2)."""
        return transport.transport(
            *self._checked(query, gallery),
            self._corner,
            temperature=self.temperature,
            rounds=self.config.rounds,
        ).plan

    def vote(self, strength: Tensor) -> Tensor:
        """F of (5): a learned function of one number, in [0, 1]."""
        return strength if self.vote_function is None else self.vote_function(strength[..., None])[..., 0]

    def logits(self, query: Descriptors, gallery: Descriptors) -> Tensor:
        """(B,) g of the score, for `binary_cross_entropy_with_logits`; descriptors not prepared yet."""
        return self.calibrated(self(query, gallery), query.counts + gallery.counts)

    def calibrated(self, score: Tensor, counts: Tensor) -> Tensor:
        """(B,) g of scores, for pairs of pictures with so many descriptors together."""
        mean = score / counts
        if self.calibration is None:
            return torch.logit(mean, eps=1e-6)
        return self.calibration((score if self.config.calibrate == "sum" else 20 * mean - 10)[:, None])[:, 0]

    @property
    def _corner(self) -> Tensor | float:
        return 0.0 if self.corner is None else self.corner

    def _checked(self, query: Descriptors, gallery: Descriptors) -> tuple[Descriptors, Descriptors]:
        for name, descriptors in (("query", query), ("gallery", gallery)):
            ready = descriptors.vectors.shape[2] == self.config.dim
            if not ready or (descriptors.gain is None) != (self.config.dustbin == "none"):
                raise ValueError(f"{name}: expected descriptors from this head's `prepare`, got others")
        return query, gallery


def _gain(config: ElvisConfig) -> nn.Module | nn.Parameter | None:
    """Function h, D → D → 1, or its ablations."""
    if config.dustbin == "none":
        return None
    if config.dustbin == "scalar":
        return nn.Parameter(torch.ones(()))
    layers: list[nn.Module] = [nn.Linear(config.dim, config.dim), nn.GELU(), nn.Linear(config.dim, 1)]
    return nn.Sequential(*layers, *([nn.Tanh()] if config.gain_tanh else []))


def _vote(config: ElvisConfig) -> nn.Module:
    """Function f, 1 → 16 → 1 with a sigmoid at the end."""
    norm = [nn.LayerNorm(16, eps=1e-6)] if config.vote_layernorm else []
    return nn.Sequential(nn.Linear(1, 16), *norm, nn.GELU(), nn.Linear(16, 1), nn.Sigmoid())


def _calibration(config: ElvisConfig) -> nn.Module | None:
    """Function g, 1 → 64 → 1, or one factor and one offset."""
    if config.calibrate == "none":
        return None
    if config.calibrate == "affine":
        return nn.Linear(1, 1)
    return nn.Sequential(nn.Linear(1, 64), nn.GELU(), nn.Linear(64, 1))
