"""Matching on a GPU: 500 gallery pictures against one query. Ready to run; no GPU has been at hand yet."""

from collections.abc import Callable

import torch

from benchmarks import machine, published, transport
from benchmarks.measure import interleaved
from elvis.transport import gpu

PAIRS = 500


def run(repeats: int) -> list[dict]:
    """All variants on the first CUDA device."""
    if (reason := gpu.available()) is not None or gpu.interpreted():
        raise SystemExit(f"the GPU suite cannot run here: {reason or 'Triton is interpreted'}")
    about = machine.description() | {"machine": torch.cuda.get_device_name(), "cpu": torch.cuda.get_device_name()}
    records = []
    for channels in transport.CHANNELS:
        data = {name: part.cuda() for name, part in transport.make_data(channels, PAIRS).items()}
        variants = _variants(data)
        timings = interleaved({name: _finished(run) for name, run in variants.items()}, PAIRS, repeats)
        records += transport.describe("transport_gpu", data, variants, timings, channels, 1, about)
    return records


def _finished(run: Callable[[], object]) -> Callable[[], None]:
    def timed() -> None:
        run()
        torch.cuda.synchronize()

    return timed


def _variants(data: transport.Data) -> dict[str, Callable[[], transport.Strengths]]:
    gains = data["query_gain"], data["gallery_gain"]
    settings = transport.CORNER, transport.TEMPERATURE, transport.ROUNDS
    masks = data["query_mask"], data["gallery_mask"]
    compiled = torch.compile(published.strengths)

    def kernel(query: str, gallery: str, *, exact: bool) -> Callable[[], transport.Strengths]:
        return lambda: gpu.strengths(data[query], data[gallery], *gains, *settings, *masks, exact)

    return {
        transport.PUBLISHED: lambda: published.strengths(data["query"], data["gallery"], *gains, *settings),
        "published, compiled": lambda: compiled(data["query"], data["gallery"], *gains, *settings),
        transport.SCALING: transport.scalings(data),
        "kernel, float16": kernel("query", "float16", exact=False),
        "kernel, int8": kernel("query", "int8", exact=False),
        "kernel, float32 exact": kernel("query", "gallery", exact=True),
    }
