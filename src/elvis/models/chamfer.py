"""Chamfer similarity, and Chamfer similarity after optimal transport: nothing is learned.

Both take raw descriptors. Standardising the channels picture by picture is a setting, and on the second-to-last block
of DINOv2 the strongest method without training that we know.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor

from elvis import transport
from elvis.models.base import Matcher, standardised, unit_length
from elvis.transport import Strengths
from elvis.transport.similarity import blocks, check_pair, cosines
from elvis.values import Descriptors


@dataclass(frozen=True, slots=True)
class ChamferConfig:
    """Settings of both.

    Attributes:
        standardise: standardise the channels of each picture before taking lengths away.
    """

    standardise: bool = False


class Chamfer(Matcher):
    """Sum over all descriptors of both pictures of the cosine with their nearest one in the other picture.

    The score lies in [−(M + N), M + N]. Symmetric: swapped pictures score the same.

    Example:
        >>> picture = Descriptors(torch.eye(3)[None])
        >>> Chamfer()(picture, picture)
        tensor([6.])
    """

    def __init__(self, config: ChamferConfig | None = None) -> None:
        super().__init__()
        self.config = config or ChamferConfig()

    @property
    def fingerprint(self) -> str:
        """The same for both classes: their prepared descriptors are interchangeable."""
        settings = json.dumps({"prepare": "unit length", **asdict(self.config)}, sort_keys=True)
        return hashlib.sha256(settings.encode()).hexdigest()

    def prepare(self, descriptors: Descriptors) -> Descriptors:
        """Unit vectors, standardised first where that is set; dimensions stay."""
        return unit_length(standardised(descriptors) if self.config.standardise else descriptors)

    def strengths(self, query: Descriptors, gallery: Descriptors) -> Strengths:
        """Largest cosine of each row and column of S."""
        parts = [
            Strengths(matrix.amax(2), matrix.amax(1))
            for matrix in (self._similarity(*block) for block in blocks(query, gallery))
        ]
        return Strengths(torch.cat([part.query for part in parts]), torch.cat([part.gallery for part in parts]))

    def refine(self, query: Descriptors, gallery: Descriptors) -> Tensor:
        """S itself."""
        return self._similarity(query, gallery)

    def _similarity(self, query: Descriptors, gallery: Descriptors) -> Tensor:
        """S, with −∞ at padding so that it never is a maximum (a masked zero would beat any negative cosine)."""
        real = query.mask[:, :, None] & gallery.mask[:, None, :]
        return cosines(query, gallery).masked_fill(~real, -torch.inf)


class ChamferTransport(Chamfer):
    """Chamfer similarity on the plan of optimal transport with all dust-bin gains and the corner fixed at 1.

    The score lies in [0, M + N]. λ = 0.1 and 10 rounds, as ELViS has them. Swapped pictures score slightly
    differently: ten rounds end on the columns.

    Example:
        >>> picture = Descriptors(torch.eye(3)[None])
        >>> 2.1 < float(ChamferTransport()(picture, picture)) < 2.3
        True
    """

    gain = 1.0
    temperature = 0.1
    rounds = 10

    def strengths(self, query: Descriptors, gallery: Descriptors) -> Strengths:
        """Largest entry of each row and column of the plan."""
        return transport.strengths(
            self._with_gain(query),
            self._with_gain(gallery),
            self.gain,
            temperature=self.temperature,
            rounds=self.rounds,
        )

    def refine(self, query: Descriptors, gallery: Descriptors) -> Tensor:
        """The plan without its dust-bins."""
        check_pair(query, gallery)
        return transport.transport(
            self._with_gain(query),
            self._with_gain(gallery),
            self.gain,
            temperature=self.temperature,
            rounds=self.rounds,
        ).plan

    def _with_gain(self, descriptors: Descriptors) -> Descriptors:
        dtype = descriptors.vectors.dtype if descriptors.vectors.is_floating_point() else torch.float32
        return replace(descriptors, gain=torch.full_like(descriptors.mask, self.gain, dtype=dtype))
