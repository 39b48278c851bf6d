"""The values that models, store, extractor and page hand to each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, cast

import torch
from torch import Tensor

PER_DESCRIPTOR = ("mask", "xy", "strength", "gain")
"""Fields with one entry a descriptor; the others have one a picture."""


@dataclass(frozen=True, slots=True, eq=False)
class Descriptors:
    """Local descriptors of B pictures, padded to the longest.

    Only `vectors` is required. What stands at padded places never matters; everything else must be finite.

    Attributes:
        vectors: (B, N, D) floating point, of any length; or int8 as an index may keep prepared ones, of which only the
            direction counts.
        mask: (B, N) bool, True where a descriptor is real; left out: all are.
        xy: (B, N, 2) patch centre as a fraction of the upright picture: x to the right, y down.
        strength: (B, N) how strongly the detector chose the descriptor; higher is stronger.
        size: (B, 2) width and height of the upright picture in pixels.
        image_vector: (B, G) global vector of the picture.
        gain: (B, N) dust-bin gain, known only after a model's `prepare`.

    Example:
        >>> two = Descriptors(torch.ones(2, 5, 3), torch.arange(5) < torch.tensor([[5], [2]]))
        >>> two.counts.tolist()
        [5, 2]
        >>> Descriptors(torch.ones(5, 3))
        Traceback (most recent call last):
        ...
        ValueError: vectors: expected shape (B, N, D), got (5, 3)
    """

    vectors: Tensor
    mask: Tensor = cast(Tensor, None)  # filled in by __post_init__: readers always see a tensor
    xy: Tensor | None = field(default=None, kw_only=True)
    strength: Tensor | None = field(default=None, kw_only=True)
    size: Tensor | None = field(default=None, kw_only=True)
    image_vector: Tensor | None = field(default=None, kw_only=True)
    gain: Tensor | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _expect_tensor("vectors", self.vectors)
        if self.vectors.ndim != 3:
            raise ValueError(f"vectors: expected shape (B, N, D), got {tuple(self.vectors.shape)}")
        pictures, places, dim = self.vectors.shape
        if not (pictures and places and dim):
            raise ValueError(
                f"vectors: expected at least one picture, descriptor and channel, got {tuple(self.vectors.shape)}"
            )
        if cast("Tensor | None", self.mask) is None:
            object.__setattr__(self, "mask", self.vectors.new_ones(pictures, places, dtype=torch.bool))
        self._check_shape("mask", (pictures, places), "(B, N)")
        if self.mask.dtype != torch.bool:
            raise TypeError(f"mask: expected dtype torch.bool, got {self.mask.dtype}")
        if not bool(self.mask.any(dim=1).all()):
            empty = (~self.mask.any(dim=1)).nonzero()[:, 0].tolist()
            raise ValueError(f"mask: expected at least one real descriptor a picture, got none in pictures {empty}")
        self._check_shape("xy", (pictures, places, 2), "(B, N, 2)")
        self._check_shape("strength", (pictures, places), "(B, N)")
        self._check_shape("gain", (pictures, places), "(B, N)")
        self._check_shape("size", (pictures, 2), "(B, 2)")
        if self.image_vector is not None:
            _expect_tensor("image_vector", self.image_vector)
            self._check_shape("image_vector", (pictures, self.image_vector.shape[-1]), "(B, G)")
        for name, value in self._tensors():
            if name not in ("mask", "size") and not (name == "vectors" and value.dtype == torch.int8):
                self._check_floats(name, value)

    def _check_shape(self, name: str, expected: tuple[int, ...], letters: str) -> None:
        value = getattr(self, name)
        if value is None:
            return
        _expect_tensor(name, value)
        if value.shape != expected:
            raise ValueError(f"{name}: expected shape {letters} = {expected}, got {tuple(value.shape)}")
        if value.device != self.vectors.device:
            raise ValueError(f"{name}: expected device {self.vectors.device} as vectors has, got {value.device}")

    def _check_floats(self, name: str, value: Tensor) -> None:
        if not value.is_floating_point():
            raise TypeError(f"{name}: expected a floating-point dtype, got {value.dtype}")
        # One pass without a temporary; a sum that overflows is looked at again below.
        if bool(torch.isfinite(value.detach().sum(dtype=torch.promote_types(value.dtype, torch.float32)))):
            return
        bad = ~torch.isfinite(value)
        if name == "vectors" or name in PER_DESCRIPTOR:
            real = self.mask[..., None].expand_as(bad) if bad.ndim == 3 else self.mask
            if not bool((bad & real).any()):
                object.__setattr__(self, name, value.masked_fill(bad, 0))
                return
        elif not bool(bad.any()):
            return
        where = sorted(set(bad.nonzero()[:, 0].tolist()))
        raise ValueError(f"{name}: expected finite numbers, got NaN or infinity in pictures {where[:8]}")

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None:
                yield each.name, value

    def __len__(self) -> int:
        return self.vectors.shape[0]

    @property
    def counts(self) -> Tensor:
        """(B,) number of real descriptors of each picture."""
        return self.mask.sum(dim=1)

    def to(self, *args: Any, **kwargs: Any) -> Descriptors:
        """The same on another device or in another floating-point dtype, as `torch.Tensor.to`.

        `size` keeps its dtype: half precision cannot count pixels. So do int8 vectors.

        Example:
            >>> Descriptors(torch.ones(1, 2, 3)).to(torch.float16).vectors.dtype
            torch.float16
        """
        device = torch.empty(0).to(self.vectors.device).to(*args, **kwargs).device

        def moved(name: str, value: Tensor) -> Tensor:
            if name != "size" and value.is_floating_point():
                return value.to(*args, **kwargs)
            return value.to(device)

        return replace(self, **{name: moved(name, value) for name, value in self._tensors()})

    def select(self, index: int | slice | Sequence[int] | Tensor) -> Descriptors:
        """Some of the pictures, in the order of `index`; a single number keeps the batch dimension.

        Example:
            >>> len(Descriptors(torch.ones(4, 2, 3)).select([3, 0, 0]))
            3
        """
        if isinstance(index, int):
            if not -len(self) <= index < len(self):
                raise ValueError(f"index: expected one of {len(self)} pictures, got {index}")
            index = [index]
        if not isinstance(index, slice | Tensor):
            index = torch.as_tensor(index, device=self.vectors.device)
        return replace(self, **{name: value[index] for name, value in self._tensors()})

    def strongest(self, count: int) -> Descriptors:
        """At most the first `count` descriptors of every picture, which are the strongest."""
        return replace(
            self,
            **{
                name: value[:, :count] for name, value in self._tensors() if name == "vectors" or name in PER_DESCRIPTOR
            },
        )

    @staticmethod
    def stack(parts: Sequence[Descriptors]) -> Descriptors:
        """One batch of many, in their order, padded to the longest.

        A field must be there in all parts or in none, and int8 vectors in all or in none.

        Example:
            >>> Descriptors.stack([Descriptors(torch.ones(1, 2, 3)), Descriptors(torch.ones(2, 5, 3))]).counts.tolist()
            [2, 5, 5]
        """
        if not parts:
            raise ValueError("stack: expected at least one Descriptors, got none")
        names = {name for name, _ in parts[0]._tensors()}
        for part in parts:
            here = {name for name, _ in part._tensors()}
            if here != names:
                raise ValueError(f"stack: expected the same fields everywhere, got {sorted(names)} and {sorted(here)}")
            if part.vectors.shape[2] != parts[0].vectors.shape[2]:
                raise ValueError(
                    f"stack: expected D = {parts[0].vectors.shape[2]} everywhere, got {part.vectors.shape[2]}"
                )
            if (part.vectors.dtype == torch.int8) != (parts[0].vectors.dtype == torch.int8):
                raise TypeError("stack: expected int8 vectors everywhere or nowhere, got both")
        longest = max(part.vectors.shape[1] for part in parts)

        def padded(name: str, value: Tensor) -> Tensor:
            missing = longest - value.shape[1]
            if missing == 0 or not (name == "vectors" or name in PER_DESCRIPTOR):
                return value
            return torch.cat([value, value.new_zeros(value.shape[0], missing, *value.shape[2:])], dim=1)

        return Descriptors(**{name: torch.cat([padded(name, getattr(part, name)) for part in parts]) for name in names})


def _expect_tensor(name: str, value: object) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor, got {type(value).__name__}")
    if name == "vectors" and not value.is_floating_point() and value.dtype != torch.int8:
        raise TypeError(f"{name}: expected a floating-point dtype, or int8, got {value.dtype}")


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """Why a pair of pictures scored what it did; B pairs of M query and N gallery descriptors.

    Attributes:
        similarity: (B, M, N) cosine of every pair of descriptors, in [-1, 1]; 0 at padding.
        refined: (B, M, N) the same after transport, in [0, 1]; equal to `similarity` for a model without transport.
        query_votes: (B, M) what each query descriptor adds to the score; 0 at padding.
        gallery_votes: (B, N) likewise for the gallery picture.
        query: the prepared query descriptors (with `gain` where the model has one).
        gallery: the prepared gallery descriptors.
        score: (B,) sum of all votes.
    """

    similarity: Tensor
    refined: Tensor
    query_votes: Tensor
    gallery_votes: Tensor
    query: Descriptors
    gallery: Descriptors
    score: Tensor

    @property
    def query_partners(self) -> Tensor:
        """(B, M) index of the gallery descriptor that each query descriptor matched best after transport."""
        return self._best(self.refined, 2)

    @property
    def gallery_partners(self) -> Tensor:
        """(B, N) index of the query descriptor that each gallery descriptor matched best after transport."""
        return self._best(self.refined, 1)

    @property
    def query_partners_before(self) -> Tensor:
        """(B, M) the partner by similarity alone, before transport."""
        return self._best(self.similarity, 2)

    @property
    def gallery_partners_before(self) -> Tensor:
        """(B, N) the partner by similarity alone, before transport."""
        return self._best(self.similarity, 1)

    @property
    def query_strengths(self) -> Tensor:
        """(B, M) strongest entry of each row after transport; 0 at padding."""
        return self.refined.amax(2).masked_fill(~self.query.mask, 0)

    @property
    def gallery_strengths(self) -> Tensor:
        """(B, N) strongest entry of each column after transport; 0 at padding."""
        return self.refined.amax(1).masked_fill(~self.gallery.mask, 0)

    def _best(self, matrix: Tensor, dim: int) -> Tensor:
        real = self.query.mask[:, :, None] & self.gallery.mask[:, None, :]
        return matrix.masked_fill(~real, -torch.inf).argmax(dim)


@dataclass(frozen=True, slots=True)
class Hit:
    """One picture found.

    Attributes:
        path: the picture, as it was indexed.
        rank: place in the answer, from 1.
        score: the ranking method's own number (for ELViS the sum of votes); higher is more alike.
        rank_before: place by global vector alone, from 1.
        global_similarity: cosine of the global vectors, in [-1, 1].
        confidence: probability that it is the same thing, in [0, 1]; None while the method has no calibration.
        box: where the match lies in the found picture: x, y, width, height as fractions of the upright picture;
            None where too few votes agree.
        query_box: the same in the query.
        metadata: the columns stored beside the picture.
    """

    path: str
    rank: int
    score: float
    rank_before: int
    global_similarity: float
    confidence: float | None = None
    box: tuple[float, float, float, float] | None = None
    query_box: tuple[float, float, float, float] | None = None
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
