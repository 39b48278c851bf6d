"""Two pictures, compared: the score, where they match, and the pictures that show why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image
from torch import Tensor

from elvis.boxes import match_boxes
from elvis.extract import Extractor
from elvis.images import Crop, open_image
from elvis.models import Matcher
from elvis.values import Explanation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Boxes = tuple[Crop | None, Crop | None]


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """What a model says of two pictures.

    Attributes:
        first: the query, upright; None where it is gone.
        second: the other one, upright; None where it is gone.
        method: name of the model, for headlines.
        explanation: of the one pair.
        boxes: of the match in the second and in the first picture.
        global_similarity: cosine of the global vectors, in [-1, 1].
        gains: dust-bin gain of all patches of the first and the second picture, (rows, columns) each; None where the
            model has no learned gain, or a picture is gone.
        crop: the part of the first picture that was matched, and that its gains cover; None is all of it.
    """

    first: Image.Image | None
    second: Image.Image | None
    method: str
    explanation: Explanation
    boxes: Boxes
    global_similarity: float
    gains: tuple[Tensor, Tensor] | None = None
    crop: Crop | None = None

    @staticmethod
    def of(
        first: str | Path | Image.Image,
        second: str | Path | Image.Image,
        extractor: Extractor,
        model: Matcher,
        *,
        method: str,
        crop: Crop | None = None,
    ) -> Comparison:
        """Reads, describes and matches two pictures.

        Args:
            first: the query.
            second: the other one.
            extractor: describes both.
            model: matches them.
            method: its name.
            crop: part of the first that shows the object.
        """
        pictures = [each if isinstance(each, Image.Image) else open_image(each) for each in (first, second)]
        one, other = extractor.extract([(pictures[0], crop), (pictures[1], None)])
        explanation = model.explain(one, other)
        gains = learned_gains(extractor, model, pictures, crop)
        return Comparison.from_explanation(explanation, pictures[0], pictures[1], method, gains=gains, crop=crop)

    @staticmethod
    def from_explanation(
        explanation: Explanation,
        first: Image.Image | None,
        second: Image.Image | None,
        method: str,
        *,
        gains: tuple[Tensor, Tensor] | None = None,
        crop: Crop | None = None,
    ) -> Comparison:
        """From descriptors that are matched already, with the pictures that are still there."""
        vectors = explanation.query.image_vector, explanation.gallery.image_vector
        assert vectors[0] is not None and vectors[1] is not None  # noqa: PT018  the extractor always gives them
        similarity = torch.nn.functional.cosine_similarity(vectors[0].float(), vectors[1].float())
        boxes = match_boxes(explanation)
        return Comparison(first, second, method, explanation, boxes, float(similarity), gains, crop)

    def facts(self) -> dict[str, Any]:
        """The numbers, as plain values."""
        score = float(self.explanation.score)
        counts = int(self.explanation.query.counts), int(self.explanation.gallery.counts)
        return {
            "score": score,
            "mean_vote": score / sum(counts),
            "descriptors": list(counts),
            "global_similarity": self.global_similarity,
            "box": self.boxes[0],
            "query_box": self.boxes[1],
        }

    def sheet(self) -> Figure:
        """All about the pair on one page."""
        from elvis.visualise import match_sheet

        first, second = self.gains or (None, None)
        return match_sheet(
            self.explanation,
            self.first,
            self.second,
            headline=f"{self.method}, global similarity {self.global_similarity:.3f}",
            boxes=self.boxes,
            query_gain=first,
            gallery_gain=second,
            query_crop=self.crop,
        )

    def figures(self) -> dict[str, Callable[[], Figure]]:
        """Every picture of the match by name; each is drawn when it is called."""
        from elvis.visualise import correspondences, dustbin_maps, matrices

        pair = self.explanation, self.first, self.second
        first, second = self.gains or (None, None)
        return {
            "match": self.sheet,
            "before": lambda: correspondences(*pair, stage="before"),
            "after": lambda: correspondences(*pair, stage="after", boxes=self.boxes),
            "ignored": lambda: dustbin_maps(*pair, query_gain=first, gallery_gain=second, query_crop=self.crop),
            "matrices": lambda: matrices(self.explanation),
        }


def learned_gains(
    extractor: Extractor, model: Matcher, pictures: list[Image.Image], crop: Crop | None
) -> tuple[Tensor, Tensor] | None:
    """Dust-bin gain h of all patches of two pictures, (rows, columns) each; None where the model learns none."""
    maps: list[Tensor] = []
    for picture, part in zip(pictures, (crop, None), strict=True):
        every, grid = extractor.dense((picture, part))
        with torch.inference_mode():
            gain = model.prepare(every).gain
        if gain is None:
            return None
        maps.append(gain[0].unflatten(0, grid))
    return maps[0], maps[1]
