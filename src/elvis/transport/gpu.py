"""The fused GPU kernel: row and column maxima of the transport plan, straight from descriptors; see `gpu_kernel.py`.

It has not run on a GPU yet. Its arithmetic is proved against the float64 reference in Triton's interpreter, and
`pytest -m gpu` proves it where there is one.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
from typing import Any

import torch
from torch import Tensor

from elvis.transport.cpu.problem import Problem, gain_or_none

SMALLEST_HALF = 0.098
"""From this λ on exp(±1/λ) fits float16; below it the matrix is kept in float32."""
BLOCK = 64
"""Descriptors of each side in a block of the product."""
PROGRAMS_PER_PROCESSOR = 1
"""Blocks of threads on a multiprocessor: the compiled kernel's registers leave room for no second one."""


def available() -> str | None:
    """Why the kernel cannot run here, or None if it can."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    if interpreted():
        return None
    if not torch.cuda.is_available():
        return "there is no CUDA device"
    if torch.cuda.get_device_capability() < (8, 0):
        return "the CUDA device is older than Triton supports"
    return None


def interpreted() -> bool:
    """Whether Triton's interpreter stands in for a GPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def strengths(
    query: Tensor,
    gallery: Tensor,
    query_gain: Tensor | None,
    gallery_gain: Tensor | None,
    corner: float,
    temperature: float,
    rounds: int,
    query_mask: Tensor,
    gallery_mask: Tensor,
    exact: bool,
) -> tuple[Tensor, Tensor]:
    """Strongest refined similarity of every descriptor, as `elvis.transport.cpu.strengths`, on a GPU.

    Args:
        query: (1 or B, M, D) unit or zero vectors in float32, float16, bfloat16, or int8 of any scale.
        gallery: (B, N, D) likewise.
        query_gain: (1 or B, M) u; None with `gallery_gain` None: no dust-bins.
        gallery_gain: (B, N) v.
        corner: ω.
        temperature: λ, from 0.05.
        rounds: of Sinkhorn, at least 1.
        query_mask: (1 or B, M) bool.
        gallery_mask: (B, N) bool.
        exact: product and matrix in float32; otherwise descriptors are rounded to float16 and, where λ allows, the
            matrix is float16 (errors some 1e-4, below 1e-3 at λ = 0.05).
    """
    if (query_gain is None) != (gallery_gain is None):
        raise ValueError("gains: expected both or none, got one")
    device = "cpu" if interpreted() else "cuda"
    gains = gain_or_none(query_gain, query), gain_or_none(gallery_gain, gallery)
    problem = Problem(
        query,
        gallery,
        *gains,
        query_mask,
        gallery_mask,
        corner=corner,
        temperature=temperature,
        rounds=rounds,
        device=device,
    )
    return _launch(problem, exact=exact)


def _launch(problem: Problem, *, exact: bool) -> tuple[Tensor, Tensor]:
    # By name: the type checker has Triton on some machines only, and its kernels have no types anyway.
    tl: Any = importlib.import_module("triton.language")
    match: Any = importlib.import_module("elvis.transport.gpu_kernel").match

    query, gallery = problem.query, problem.gallery
    pairs, n, channels = gallery.shape
    m, device = query.shape[1], gallery.device
    constants = torch.tensor(
        [
            math.log2(math.e) / problem.temperature,
            math.exp(min(problem.corner, 0.0) / problem.temperature),
            math.exp(-max(problem.corner, 0.0) / problem.temperature),
        ],
        dtype=torch.float64,
        device=device,
    )
    half = not exact and problem.temperature >= SMALLEST_HALF
    programs = min(pairs, _processors(device) * PROGRAMS_PER_PROCESSOR)
    room = -(-m // BLOCK) * BLOCK
    matrix = torch.empty(programs, n, room, dtype=torch.float16 if half else torch.float32, device=device)
    sums = torch.empty(programs, room, device=device)
    results = torch.zeros(pairs, m, device=device), torch.zeros(pairs, n, device=device)
    rows = max(16, 1 << (m - 1).bit_length())
    match[(programs,)](
        query,
        problem.query_gain,
        problem.query_mask.view(torch.uint8),
        gallery,
        problem.gallery_gain,
        problem.gallery_mask.view(torch.uint8),
        constants,
        matrix,
        sums,
        *results,
        pairs,
        int(len(query) > 1),
        m,
        room,
        n,
        channels,
        problem.rounds,
        PRODUCT=tl.float32 if exact else tl.float16,
        ROWS=rows,
        COLUMNS=max(1, min(16, 16384 // rows)),
        STAGES=3,
        BLOCK=BLOCK,
        DEPTH=32,
        QUERY_INT8=query.dtype == torch.int8,
        GALLERY_INT8=gallery.dtype == torch.int8,
        num_warps=8,
        enable_fp_fusion=True,
    )
    return results


def _processors(device: torch.device) -> int:
    if device.type != "cuda":
        return 1
    return torch.cuda.get_device_properties(device).multi_processor_count
