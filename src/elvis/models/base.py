"""What every model that matches descriptor by descriptor has in common.

One picture alone → `prepare`. Two prepared pictures → the strongest match of every descriptor → a vote each → their
sum. A model says how to prepare, how to find the strongest matches, and what a match is worth.
"""

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from elvis.transport import Strengths
from elvis.transport.similarity import check_pair, cosines
from elvis.values import Descriptors, Explanation


class Matcher(nn.Module, ABC):
    """A similarity of two pictures that is a sum of votes, one for each of their descriptors.

    Attributes:
        config: settings, a frozen dataclass.
    """

    config: Any

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Names what `prepare` does, settings and weights: prepared descriptors fit a model of equal fingerprint."""

    @abstractmethod
    def prepare(self, descriptors: Descriptors) -> Descriptors:
        """What depends on one picture alone, done once: the form that an index stores and `score` takes."""

    @abstractmethod
    def strengths(self, query: Descriptors, gallery: Descriptors) -> Strengths:
        """Strongest match of every prepared descriptor, (B, M) and (B, N); 0 at padding."""

    @abstractmethod
    def refine(self, query: Descriptors, gallery: Descriptors) -> Tensor:
        """(B, M, N) matrix whose row and column maxima are the `strengths`; for explanations."""

    def vote(self, strength: Tensor) -> Tensor:
        """What matches of these strengths are worth, each in [0, 1]."""
        return strength

    def score(self, query: Descriptors, gallery: Descriptors) -> Tensor:
        """(B,) sum of all votes of prepared descriptors; higher is more alike.

        A query batch of one meets every gallery picture, without being copied.
        """
        check_pair(query, gallery)
        query_votes, gallery_votes = self._votes(query, gallery)
        return query_votes.sum(dim=1) + gallery_votes.sum(dim=1)

    def forward(self, query: Descriptors, gallery: Descriptors) -> Tensor:
        """(B,) `score` of descriptors that are not prepared yet."""
        return self.score(self.prepare(query), self.prepare(gallery))

    @torch.no_grad()
    def explain(self, query: Descriptors, gallery: Descriptors) -> Explanation:
        """All that a picture of the match needs, from descriptors that are not prepared yet."""
        return self.explain_prepared(self.prepare(query), self.prepare(gallery))

    @torch.no_grad()
    def explain_prepared(self, query: Descriptors, gallery: Descriptors) -> Explanation:
        """`explain` from prepared descriptors, as an index holds them."""
        check_pair(query, gallery)
        if len(query) != len(gallery):
            query = query.select([0] * len(gallery))
        refined = self.refine(query, gallery)
        real = query.mask[:, :, None] & gallery.mask[:, None, :]
        query_votes, gallery_votes = self._votes(query, gallery)
        return Explanation(
            similarity=cosines(query, gallery).masked_fill(~real, 0),
            refined=refined.masked_fill(~real, 0),
            query_votes=query_votes,
            gallery_votes=gallery_votes,
            query=query,
            gallery=gallery,
            score=query_votes.sum(dim=1) + gallery_votes.sum(dim=1),
        )

    def _votes(self, query: Descriptors, gallery: Descriptors) -> tuple[Tensor, Tensor]:
        """A vote for every real descriptor, (B, M) and (B, N); nothing for padding."""
        strengths = self.strengths(query, gallery)
        return (
            self.vote(strengths.query).masked_fill(~query.mask, 0),
            self.vote(strengths.gallery).masked_fill(~gallery.mask, 0),
        )


def standardised(descriptors: Descriptors) -> Descriptors:
    """Channels standardised picture by picture: minus the mean of its descriptors, divided by their deviation.

    Takes away what season, light and camera do to all descriptors of a picture alike. A channel that does not vary
    becomes zero.
    """
    x = at_least_float32(descriptors.vectors)
    real = descriptors.mask[:, :, None]
    count = real.sum(dim=1, keepdim=True)
    mean = x.masked_fill(~real, 0).sum(dim=1, keepdim=True) / count
    centred = (x - mean).masked_fill(~real, 0)
    deviation = (centred.square().sum(dim=1, keepdim=True) / count).sqrt()
    # A constant channel leaves rounding errors behind; dividing them by their own deviation would make them signals.
    tiny = 1e-6 * mean.abs() + torch.finfo(x.dtype).tiny
    return replace(descriptors, vectors=torch.where(deviation > tiny, centred / deviation.clamp_min(tiny), 0))


def unit_length(descriptors: Descriptors) -> Descriptors:
    """Every real vector divided by its length, padding and zero vectors zero."""
    x = at_least_float32(descriptors.vectors).masked_fill(~descriptors.mask[:, :, None], 0)
    return replace(descriptors, vectors=nn.functional.normalize(x, dim=-1))


def at_least_float32(x: Tensor) -> Tensor:
    """Half precision widened: sums of squares do not fit in it."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
