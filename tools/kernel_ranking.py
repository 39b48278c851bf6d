"""Whether the fused kernel ranks real shortlists as the float64 reference does: Kendall's τ a query.

elvis index ../shared/pocket/gardens/images --index gardens.index
python tools/kernel_ranking.py gardens.index ../shared/pocket/gardens/images/night_right_0[0-9]0.jpg
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import torch
from scipy.stats import kendalltau

from elvis import Descriptors, Index, Searcher
from elvis.transport import reference
from elvis.transport.similarity import cosines

CANDIDATES = 100
PAIRS = 5
"""Pairs of the reference computed together: 14 MB each in float64."""


def main(place: Path, queries: list[Path]) -> None:
    """Prints τ of each query and the largest difference of a score."""
    with Index.open(place) as index:
        searcher = Searcher(index, method="chamfer-ot")
        for query in queries:
            view = searcher.model.prepare(searcher.describe(query))
            rows = [each.row_id for each in index.nearest(view.image_vector[0], CANDIDATES)]
            gallery = index.descriptors(rows, dtype=torch.float16)
            fast = searcher.model.score(view, gallery).double()
            slow = torch.cat(
                [truth(view, gallery.select(slice(start, start + PAIRS))) for start in range(0, len(rows), PAIRS)]
            )
            tau = kendalltau(fast, slow).statistic
            print(f"{query.name}: tau {tau:.5f}, largest difference {float((fast - slow).abs().max()):.1e}")


def truth(query: Descriptors, gallery: Descriptors) -> torch.Tensor:
    """Chamfer similarity on the plan of the float64 reference, from the descriptors as stored."""
    wide = replace(gallery, vectors=gallery.vectors.double())
    ones = torch.ones(1, dtype=torch.float64)
    plan = reference.sinkhorn(
        cosines(query, wide),
        ones.expand(len(gallery), query.vectors.shape[1]),
        ones.expand(len(gallery), gallery.vectors.shape[1]),
        1.0,
        temperature=0.1,
        rounds=10,
        query_mask=query.mask,
        gallery_mask=gallery.mask,
    )
    return plan.row_max.sum(1) + plan.column_max.sum(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(query) for query in sys.argv[2:]])
