"""A training step: forward and backward of 40 triplets, each an anchor with its positive and its negative.

80 pairs, 256 descriptors a picture, 384 channels projected to 128, ten rounds; binary cross-entropy on the logits, with
gradients of all parameters of the head. Once the whole step, once the transport alone, with gradients of the projected
descriptors, gains and corner. Memory is what a process grows by during one step, on Linux.
"""

import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import machine, published
from benchmarks.measure import interleaved
from elvis.models import Elvis, ElvisConfig
from elvis.transport import Strengths, strengths
from elvis.values import Descriptors

TRIPLETS, PLACES, CHANNELS, DIM = 40, 256, 384, 128
PUBLISHED, COMPILED, OURS = "published: log domain, autograd", "the same, torch.compile", "elvis"
PARTS = ("whole step", "transport")

Solve = Callable[[Descriptors, Descriptors, Tensor, float, int], tuple[Tensor, Tensor]]


def run(repeats: int) -> list[dict]:
    """All variants, on one thread and on all; memory in processes of their own."""
    machine.keep_memory()
    about, records = machine.description(), []
    solvers, compile_seconds = _solvers()
    cores = torch.get_num_threads()
    peaks = {(name, part): _peak_of_process(name, part) for name in solvers for part in PARTS}
    for part in PARTS:
        for threads in sorted({1, cores}):
            with _threads(threads):
                steps = {name: make_step(solve, part) for name, solve in solvers.items()}
                truth = steps[PUBLISHED]()
                timings = interleaved(steps, 2 * TRIPLETS, repeats)
            for name, timing in timings.items():
                record = {
                    "suite": "training",
                    "part": part,
                    "variant": name,
                    "channels": DIM,
                    "threads": threads,
                    "ratio": timings[PUBLISHED].best / timing.best,
                    "ratio_processor": timings[PUBLISHED].processor / timing.processor,
                    **{f"ms_{of}": value for of, value in asdict(timing).items() if of != "repeats"},
                    "repeats": timing.repeats,
                    "peak_mib": peaks[name, part],
                    "compile_seconds": compile_seconds if name == COMPILED else None,
                    "gradient_error": _difference(steps[name](), truth),
                }
                records.append(record | about)
                print(
                    f"{part:10s}  threads {threads}  {record['ms_best']:7.3f} ms a pair  {record['ratio']:4.1f}x  "
                    f"(processor time {record['ratio_processor']:4.1f}x)  peak {record['peak_mib']} MiB  "
                    f"gradients differ by {record['gradient_error']:.0e}  {name}",
                    flush=True,
                )
    return records


def make_step(solve: Solve, part: str) -> Callable[[], list[Tensor]]:
    """A function that goes forward and back once, and gives the gradients."""
    torch.manual_seed(0)
    head = _Head(ElvisConfig(input_dim=CHANNELS, dim=DIM), solve)
    anchors, positives, negatives = torch.randn(3, TRIPLETS, PLACES, CHANNELS)
    positives[:, : PLACES // 3] = anchors[:, : PLACES // 3] + 0.5 * positives[:, : PLACES // 3]
    query, gallery = Descriptors(torch.cat([anchors, anchors])), Descriptors(torch.cat([positives, negatives]))
    labels = torch.cat([torch.ones(TRIPLETS), torch.zeros(TRIPLETS)])
    if part == "whole step":
        parameters = list(head.parameters())

        def step() -> list[Tensor]:
            loss = F.binary_cross_entropy_with_logits(head.logits(query, gallery), labels)
            return list(torch.autograd.grad(loss, parameters))

        return step
    with torch.no_grad():
        prepared = [head.prepare(side) for side in (query, gallery)]
    inputs = [tensor.requires_grad_() for side in prepared for tensor in (side.vectors, side.gain)] + [head.corner]

    def transport_step() -> list[Tensor]:
        rows, columns = head.strengths(*prepared)
        return list(torch.autograd.grad(rows.square().sum() + columns.square().sum(), inputs))

    return transport_step


class _Head(Elvis):
    """ELViS whose transport is given."""

    def __init__(self, config: ElvisConfig, solve: Solve) -> None:
        super().__init__(config)
        self.solve = solve

    def strengths(self, query: Descriptors, gallery: Descriptors) -> Strengths:
        return Strengths(*self.solve(query, gallery, self.corner, self.config.temperature, self.config.rounds))


def _ours(query: Descriptors, gallery: Descriptors, corner: Tensor, temperature: float, rounds: int) -> Strengths:
    return strengths(query, gallery, corner, temperature=temperature, rounds=rounds)


def _published(plain: Callable[..., tuple[Tensor, Tensor]]) -> Solve:
    def solve(query, gallery, corner, temperature, rounds):
        return plain(query.vectors, gallery.vectors, query.gain, gallery.gain, corner, temperature, rounds)

    return solve


def _solvers() -> tuple[dict[str, Solve], float | None]:
    """Every variant that runs here, and how long the compiler took; None where it failed."""
    solvers: dict[str, Solve] = {PUBLISHED: _published(published.strengths)}
    start = time.perf_counter()
    try:
        compiled = _compiled()
        for part in PARTS:
            make_step(compiled, part)()
        solvers[COMPILED] = compiled
        seconds = time.perf_counter() - start
    except Exception as error:  # whatever the compiler raises: the figure is then missing, and this line says why
        print(f"torch.compile failed here: {type(error).__name__}: {str(error).splitlines()[0]}")
        seconds = None
    solvers[OURS] = _ours
    return solvers, seconds


def _compiled() -> Solve:
    warnings.filterwarnings("ignore", module="torch")
    return _published(torch.compile(published.strengths))


def _difference(gradients: list[Tensor], truth: list[Tensor]) -> float:
    """Largest difference of a gradient, relative to the largest entry of its tensor."""
    return max(
        float((a - b).abs().max() / b.abs().max().clamp_min(1e-30)) for a, b in zip(gradients, truth, strict=True)
    )


def _peak_of_process(name: str, part: str) -> float | None:
    command = [sys.executable, "-m", "benchmarks.training", name, part]
    done = subprocess.run(command, cwd=Path(__file__).parent.parent, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"measuring the memory of {name} failed: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def _peak(name: str, part: str) -> float | None:
    """MiB by which this process grows in its second step: the first brings libraries, threads and compiled code."""
    if sys.platform != "linux":
        return None
    step = make_step({PUBLISHED: _published(published.strengths), OURS: _ours}.get(name) or _compiled(), part)
    step()
    machine.give_back_memory()
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts again
    step()
    return round((_status("VmHWM") - before) / 1024, 1)


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field + ":")).split()[1])


@contextmanager
def _threads(count: int):
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


if __name__ == "__main__":
    print(json.dumps(_peak(*sys.argv[1:])))
