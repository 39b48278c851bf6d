"""Matching: 20 gallery pictures against one query, 600 descriptors each, ten rounds."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import machine, published
from benchmarks.measure import Timing, interleaved
from elvis.transport import reference, scaling
from elvis.transport.cpu.launch import solve
from elvis.transport.cpu.machine import Machine, host
from elvis.transport.cpu.problem import Problem

PAIRS, PLACES, CHANNELS = 20, 600, (128, 384, 768)
CORNER, TEMPERATURE, ROUNDS = 1.0, 0.1, 10
DISTURBED = 1.25
"""A run whose clock ran this much longer than its share of processor time was kept waiting by others."""
PUBLISHED, SCALING = "published: log domain, PyTorch", "scaling form, PyTorch"

Data = dict[str, Tensor]
Strengths = tuple[Tensor, Tensor]


def run(repeats: int) -> list[dict]:
    """All variants at all sizes, on one thread and on all."""
    machine.keep_memory()
    about, records = machine.description(), []
    cores = torch.get_num_threads()
    for channels in CHANNELS:
        data = make_data(channels, PAIRS)
        for threads in sorted({1, cores}):
            with _threads(threads):
                variants = _variants(data, threads, other_sets=channels == CHANNELS[0])
                timings = interleaved(variants, PAIRS, repeats)
                records += describe("transport", data, variants, timings, channels, threads, about)
    return records


def describe(
    suite: str,
    data: Data,
    variants: dict[str, Callable[[], Strengths]],
    timings: dict[str, Timing],
    channels: int,
    threads: int,
    about: dict,
) -> list[dict]:
    """A record for each variant: timings, ratios to the published algorithm, errors."""
    records = []
    for name, timing in timings.items():
        strengths = variants[name]()
        record = {
            "suite": suite,
            "variant": name,
            "channels": channels,
            "threads": threads,
            "ratio": timings[PUBLISHED].best / timing.best,
            "ratio_processor": timings[PUBLISHED].processor / timing.processor,
            **{f"ms_{part}": value for part, value in asdict(timing).items() if part != "repeats"},
            "repeats": timing.repeats,
            "disturbed": any(t.best > DISTURBED * t.processor / threads for t in (timing, timings[PUBLISHED])),
            "error": _error(strengths, _truth(data, _as_stored(data, name))),
            "error_with_storage": _error(strengths, _truth(data, data["gallery"])),
        }
        records.append(record | about)
        print(
            f"D {channels:4d}  threads {threads}  {record['ms_best']:7.4f} ms  {record['ratio']:5.1f}x  "
            f"(processor time {record['ratio_processor']:5.1f}x)  error {record['error']:.0e}  {name}",
            flush=True,
        )
    return records


def make_data(channels: int, pairs: int) -> Data:
    """A third of the gallery's descriptors show the query's, slightly changed; the rest show something else."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    query = F.normalize(draw(1, PLACES, channels), dim=-1)
    near = F.normalize(query + 0.05 * draw(pairs, PLACES, channels) * (128 / channels) ** 0.5, dim=-1)
    far = F.normalize(draw(pairs, PLACES, channels), dim=-1)
    gallery = torch.where(torch.rand(pairs, PLACES, 1, generator=generator) < 0.3, near, far).contiguous()
    largest = gallery.abs().amax(dim=2, keepdim=True)
    return {
        "query": query,
        "gallery": gallery,
        "float16": gallery.half(),
        "int8": (gallery / largest * 127).round().to(torch.int8),
        "query_gain": draw(1, PLACES).tanh(),
        "gallery_gain": draw(pairs, PLACES).tanh(),
        "query_mask": torch.ones(1, PLACES, dtype=torch.bool),
        "gallery_mask": torch.ones(pairs, PLACES, dtype=torch.bool),
    }


def _variants(data: Data, threads: int, *, other_sets: bool) -> dict[str, Callable[[], Strengths]]:
    gains = data["query_gain"], data["gallery_gain"]
    masks = {"query_mask": data["query_mask"], "gallery_mask": data["gallery_mask"]}

    def kernel(gallery: str, *, exact: bool, on: Machine) -> Callable[[], Strengths]:
        problem = Problem(
            data["query"], data[gallery], *gains, **masks, corner=CORNER, temperature=TEMPERATURE, rounds=ROUNDS
        )
        return lambda: solve(problem, on, exact=exact, threads=threads)

    here = host()
    variants = {
        PUBLISHED: lambda: published.strengths(data["query"], data["gallery"], *gains, CORNER, TEMPERATURE, ROUNDS),
        SCALING: scalings(data),
        f"kernel, float16, {here.name}": kernel("float16", exact=False, on=here),
        f"kernel, int8, {here.name}": kernel("int8", exact=False, on=here),
        f"kernel, float32 exact, {here.name}": kernel("gallery", exact=True, on=here),
    }
    if other_sets and here.name == "avx512":
        older = Machine("avx2", 8, 6, "llvm.x86.avx2.pmadd.wd", here.triple, "haswell")
        oldest = Machine("sse2", 4, 6, "llvm.x86.sse2.pmadd.wd", here.triple, "x86-64")
        variants["kernel, float16, avx2"] = kernel("float16", exact=False, on=older)
        variants["kernel, float16, sse2"] = kernel("float16", exact=False, on=oldest)
    return variants


def scalings(data: Data) -> Callable[[], Strengths]:
    """The scaling form of the library, whole batch."""

    def solve_() -> Strengths:
        gallery = data["gallery"]
        plan = scaling.sinkhorn(
            torch.bmm(data["query"].expand(len(gallery), -1, -1), gallery.transpose(1, 2)),
            data["query_gain"],
            data["gallery_gain"],
            CORNER,
            temperature=TEMPERATURE,
            rounds=ROUNDS,
            query_mask=data["query_mask"],
            gallery_mask=data["gallery_mask"],
        )
        return plan.row_max, plan.column_max

    return solve_


def _as_stored(data: Data, variant: str) -> Tensor:
    """The descriptors that a variant was given: its arithmetic is judged by these, its storage by the original."""
    for stored in ("float16", "int8"):
        if stored in variant:
            return F.normalize(data[stored].double(), dim=-1) if stored == "int8" else data[stored]
    return data["gallery"]


def _truth(data: Data, gallery: Tensor) -> Strengths:
    similarity = torch.bmm(data["query"].double().expand(len(gallery), -1, -1), gallery.double().transpose(1, 2))
    plan = reference.sinkhorn(
        similarity,
        data["query_gain"].double(),
        data["gallery_gain"].double(),
        CORNER,
        temperature=TEMPERATURE,
        rounds=ROUNDS,
        query_mask=data["query_mask"],
        gallery_mask=data["gallery_mask"],
    )
    return plan.row_max, plan.column_max


def _error(got: Strengths, correct: Strengths) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(got, correct, strict=True))


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
