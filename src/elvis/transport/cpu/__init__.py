"""The fused CPU kernel: row and column maxima of the transport plan, straight from descriptors.

Why machine code by way of llvmlite: the kernel's speed comes from choices that neither torch nor numba can express
(16-bit products in pairs, a matrix of 16-bit entries that stays in the cache, a round in one pass), and C would need a
compiler or a wheel for every system. llvmlite is one wheel with a compiler inside: it takes a tenth of a second at the
first call, fits the code to the processor at hand, and lets sizes, number types and instruction sets be parameters of
one generator. What it costs is 170 MB installed and a reader who accepts the small language of `emit.py`.

    emit.py         numbers, arrays and loops that write LLVM's intermediate form
    machine.py      what the processor can do; compiling
    form.py         which number formats, for which λ
    mathematics.py  powers of two, the 16-bit matrix
    read.py         descriptors without padding in the product's type
    kernel.py       the kernel itself: the mathematics is at its top
    problem.py      arguments, checked
    launch.py       threads, memory, the call
"""

from __future__ import annotations

import sys
from functools import cache

import torch
from torch import Tensor

from elvis.transport.cpu.problem import Problem, gain_or_none


@cache
def available() -> str | None:
    """Why the kernel cannot run here, or None if it can."""
    if sys.byteorder != "little":
        return "this processor stores numbers with the highest byte first"
    if sys.maxsize < 2**32:
        return "this Python has 32-bit addresses"
    try:
        from elvis.transport.cpu.machine import broken
    except (ImportError, OSError) as error:
        return f"llvmlite does not load ({error})"
    return broken()


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
    *,
    threads: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Strongest refined similarity of every query and every gallery descriptor; no gradients.

    A padded descriptor costs nothing, has strength 0, and whatever stands in its place is never read. |gain| / λ may be
    up to 30; the corner is any number.

    Args:
        query: (1 or B, M, D) unit or zero vectors in float32, float16 or bfloat16, or int8 of any scale: an int8
            vector only says where it points and is divided by its own length. One query meets all gallery pictures.
        gallery: (B, N, D) likewise, perhaps of another type.
        query_gain: (1 or B, M) dust-bin gains u; None with `gallery_gain` None: no dust-bins.
        gallery_gain: (B, N) v.
        corner: ω.
        temperature: λ, from 0.05.
        rounds: of Sinkhorn, at least 1.
        query_mask: (1 or B, M) bool, True where a descriptor is real.
        gallery_mask: (B, N) bool.
        exact: compute as float32 throughout, for descriptors in float32 (errors some 1e-6); otherwise with 16-bit
            products and a 16-bit matrix, several times faster (errors some 1e-4).
        threads: how many to use; None: as many as torch does.

    Returns:
        (B, M) and (B, N) float32 in [0, 1].

    Raises:
        ValueError: an argument does not fit, or a vector (other than int8) is longer than 1.

    Example:
        >>> one, gain, mask = torch.eye(3)[None], torch.zeros(1, 3), torch.ones(1, 3, dtype=torch.bool)
        >>> rows, columns = strengths(one, one, gain, gain, 0.0, 0.1, 10, mask, mask, exact=True)
        >>> [round(x, 3) for x in rows[0].tolist()]
        [0.95, 0.95, 0.95]
    """
    from elvis.transport.cpu.launch import solve
    from elvis.transport.cpu.machine import host

    if (query_gain is None) != (gallery_gain is None):
        raise ValueError("gains: expected both or none, got one")
    problem = Problem(
        query,
        gallery,
        gain_or_none(query_gain, query),
        gain_or_none(gallery_gain, gallery),
        query_mask,
        gallery_mask,
        corner=corner,
        temperature=temperature,
        rounds=rounds,
    )
    return solve(problem, host(), exact=exact, threads=threads or torch.get_num_threads())
