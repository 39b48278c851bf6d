"""What speed and space cost in mAP: engines, precisions, presets and stored forms on real pictures, one table each.

Every variant ranks by Chamfer similarity after transport with channels standardised, the method that needs no training,
at depth 100. Descriptors are kept in a cache folder, as `elvis bench` keeps them: a second run takes minutes.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from benchmarks import machine
from elvis.evaluation.benchmark import EvaluationSettings, evaluate, first_stage
from elvis.evaluation.cache import DescriptorCache
from elvis.evaluation.datasets import Benchmark, load_benchmark
from elvis.evaluation.gather import exact_fingerprint, gather
from elvis.extract import PRESETS, ExtractionSettings, Extractor
from elvis.models import ChamferConfig, ChamferTransport, Matcher
from elvis.store.packing import pack
from elvis.values import Descriptors

BALANCED = PRESETS["balanced"]
DEPTH = 100


@dataclass(frozen=True, slots=True)
class Variant:
    """One line of a table; the first of a table is what the others are compared with."""

    table: str
    name: str
    settings: ExtractionSettings
    engine: str = "auto"
    stored: str = "float16"


VARIANTS = (
    Variant("engine", "torch fp32", replace(BALANCED, precision="fp32"), "torch"),
    Variant("engine", "openvino fp32", replace(BALANCED, precision="fp32"), "openvino"),
    Variant("engine", "torch bf16", replace(BALANCED, precision="bf16"), "torch"),
    Variant("engine", "openvino bf16", replace(BALANCED, precision="bf16"), "openvino"),
    Variant("storage", "float16", BALANCED),
    Variant("storage", "int8", BALANCED, stored="int8"),
    Variant("preset", "balanced", BALANCED),
    Variant("preset", "fast", PRESETS["fast"]),
    Variant("preset", "accurate", PRESETS["accurate"]),
)


class AsStored(ChamferTransport):
    """Gallery pictures as an index gives them back."""

    def __init__(self, stored: str) -> None:
        super().__init__(ChamferConfig(standardise=True))
        self.stored = stored

    def score(self, query: Descriptors, gallery: Descriptors) -> torch.Tensor:
        if self.stored == "int8":  # float16 is what the evaluation keeps them in anyway
            gallery = replace(gallery, vectors=as_int8(gallery.vectors))
        return super().score(query, gallery)


def as_int8(vectors: torch.Tensor) -> torch.Tensor:
    """What the store's `pack` and `unpack` make of unit vectors, many pictures at once."""
    vectors = vectors.float()
    largest = vectors.abs().amax(dim=-1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny)
    return (vectors / largest * 127).round().to(torch.int8)


def run(folders: Sequence[Path], cache: Path, queries: int, only: str | None) -> list[dict]:
    """A record for each variant and data set; of every data set `queries` queries evenly spaced."""
    about, records = machine.description(), []
    sets = [some_queries(load_benchmark(folder), queries) for folder in folders]
    for variant in VARIANTS:
        if only is not None and variant.table != only:
            continue
        extractor = Extractor(variant.settings, engine=variant.engine)
        for benchmark in sets:
            ap, seconds = _average_precision(benchmark, extractor, cache, AsStored(variant.stored))
            record = {
                "suite": "accuracy",
                "table": variant.table,
                "variant": variant.name,
                "dataset": benchmark.name,
                "queries": int(np.isfinite(ap).sum()),
                "map": 100 * float(np.nanmean(ap)),
                "seconds_a_picture": seconds,
                "extraction": variant.settings.to_dict(),
                "computed_in": extractor.precision,
                "stored": variant.stored,
                "bytes_a_picture": _bytes(variant, extractor),
                "depth": DEPTH,
            }
            records.append(record | about)
            print(f"{variant.table:8s} {variant.name:14s} {benchmark.name:10s} mAP {record['map']:.2f}", flush=True)
    return records


def some_queries(benchmark: Benchmark, count: int) -> Benchmark:
    """At most so many queries, evenly spaced, and the whole gallery."""
    places = np.unique(np.linspace(0, len(benchmark.queries) - 1, min(count, len(benchmark.queries))).astype(int))
    return replace(
        benchmark,
        queries=[benchmark.queries[place] for place in places],
        judgements=[
            replace(
                judgement,
                positives=[judgement.positives[place] for place in places],
                ignored=[judgement.ignored[place] for place in places],
            )
            for judgement in benchmark.judgements
        ],
    )


def _average_precision(
    benchmark: Benchmark, extractor: Extractor, cache: Path, model: Matcher
) -> tuple[np.ndarray, float | None]:
    """AP of each query, and seconds a picture where all of them were extracted now."""
    kept = DescriptorCache(cache, exact_fingerprint(extractor), extractor.settings.to_dict())
    done: list[float] = []
    collection = gather(benchmark, extractor, kept, lambda _: done.append(time.perf_counter()))
    settings = EvaluationSettings(depth=DEPTH)
    (outcome,) = evaluate(collection, first_stage(collection, settings), model, settings)
    gaps = np.diff(done)
    extracted = gaps[gaps > 0.02]  # less than that is a look into the cache
    return outcome.ap, float(np.median(extracted)) if len(extracted) == len(gaps) and len(gaps) else None


def _bytes(variant: Variant, extractor: Extractor) -> int:
    count = variant.settings.descriptors
    unit = torch.nn.functional.normalize(torch.ones(1, count, extractor.dim), dim=2)
    picture = Descriptors(unit, xy=torch.zeros(1, count, 2), strength=torch.zeros(1, count))
    return len(pack(picture, b"", variant.stored))
