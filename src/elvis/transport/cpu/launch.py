"""Threads, memory and the call: what stands between tensors and the compiled kernel."""

from __future__ import annotations

import ctypes
import math
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elvis.transport.cpu.form import Form, Scales, choose
from elvis.transport.cpu.job import Match, Packing, Workspace
from elvis.transport.cpu.kernel import matching_module, packing_module
from elvis.transport.cpu.machine import Compiled, Machine
from elvis.transport.cpu.problem import Problem

Bytes = NDArray[np.uint8]
SHARE = 4
"""Shares of the pairs a thread takes: enough that a slowed one does not keep the others waiting."""
LINE = 64
"""Bytes of a cache line, and of the widest vector."""


@dataclass(frozen=True, slots=True)
class Packed:
    """Queries as the kernel reads them; see `read.py`."""

    room: int
    panels: Bytes
    scaled: Bytes
    live: Bytes
    place: Bytes
    count: Bytes


@lru_cache(maxsize=32)
def packer(form: Form, source: str) -> Any:
    """The compiled `pack` for a form and a type of descriptors."""
    compiled = Compiled(packing_module(form, source), form.machine)
    return compiled, compiled.function("pack", ctypes.c_void_p)


@lru_cache(maxsize=32)
def matcher(form: Form, source: str) -> Any:
    """The compiled `match` for a form and a type of descriptors."""
    compiled = Compiled(matching_module(form, source), form.machine)
    address, count = ctypes.c_void_p, ctypes.c_int64
    return compiled, compiled.function("match", address, address, count, count)


def solve(problem: Problem, machine: Machine, *, exact: bool, threads: int) -> tuple[Tensor, Tensor]:
    """Strengths of all pairs, on up to `threads` threads."""
    form, scales = choose(machine, problem.temperature, exact=exact)
    pairs, n, channels = problem.gallery.shape
    packed = _pack(problem, form, scales, threads)
    query_strengths = torch.zeros(pairs, problem.query.shape[1])
    gallery_strengths = torch.zeros(pairs, n)
    job = Match(
        query_step=int(len(problem.query) > 1),
        query_places=problem.query.shape[1],
        query_room=packed.room,
        query_count=packed.count.ctypes.data,
        query_place=packed.place.ctypes.data,
        query_scaled=packed.scaled.ctypes.data,
        query_live=packed.live.ctypes.data,
        query_panels=packed.panels.ctypes.data,
        gallery_places=n,
        gallery_vectors=problem.gallery.data_ptr(),
        gallery_mask=problem.gallery_mask.data_ptr(),
        gallery_gain=problem.gallery_gain.data_ptr(),
        channels=channels,
        rounds=problem.rounds,
        steepness=scales.steepness,
        shift=scales.shift,
        half=scales.half,
        corner=math.exp(min(problem.corner, 0.0) / problem.temperature),
        dust=math.exp(-max(problem.corner, 0.0) / problem.temperature),
        query_strengths=query_strengths.data_ptr(),
        gallery_strengths=gallery_strengths.data_ptr(),
    )
    _, match = matcher(form, _source(problem.gallery))
    address = ctypes.addressof(job)

    def work(first: int, last: int) -> None:
        workspace = _workspace(form, packed.room, n, channels)
        refused = ctypes.c_int64.from_address(workspace.refused)
        refused.value = 0
        match(address, ctypes.addressof(workspace), first, last)
        _check("gallery", refused)

    _share(pairs, threads, work)
    return query_strengths, gallery_strengths


def _pack(problem: Problem, form: Form, scales: Scales, threads: int) -> Packed:
    queries, places, channels = problem.query.shape
    room, depth = _up(places, form.panel), form.depth(channels)
    packed = Packed(
        room=room,
        panels=_memory(queries * room * depth * 4),
        scaled=_memory(queries * room * 4),
        live=_memory(queries * room * 4),
        place=_memory((queries * room + 1) * 4),
        count=_memory(queries * 8),
    )
    _, pack = packer(form, _source(problem.query))

    def work(first: int, last: int) -> None:
        word, refused = _memory(room * depth * 4), ctypes.c_int64(0)
        for query in range(first, last):
            job = Packing(
                vectors=problem.query[query].data_ptr(),
                mask=problem.query_mask[query].data_ptr(),
                gain=problem.query_gain[query].data_ptr(),
                places=places,
                channels=channels,
                steepness=scales.steepness,
                offset=scales.shift - scales.half,
                word=word.ctypes.data,
                panels=packed.panels.ctypes.data + query * room * depth * 4,
                scaled=packed.scaled.ctypes.data + query * room * 4,
                live=packed.live.ctypes.data + query * room * 4,
                place=packed.place.ctypes.data + query * room * 4,
                count=packed.count.ctypes.data + query * 8,
                refused=ctypes.addressof(refused),
            )
            pack(ctypes.addressof(job))
        _check("query", refused)

    _share(queries, threads, work)
    return packed


def _check(side: str, refused: ctypes.c_int64) -> None:
    if refused.value:
        raise ValueError(f"{side}: expected vectors of length 1 at most, got longer ones; L2-normalise them")


class _Held(threading.local):
    """A thread's workspace, kept from call to call and made anew when one needs more."""

    sizes: tuple[int, ...] = ()
    workspace: Workspace | None = None
    memory: tuple[Bytes, ...] = ()


_held = _Held()


def _workspace(form: Form, query_room: int, gallery_places: int, channels: int) -> Workspace:
    columns = _up(gallery_places, form.machine.tile)
    sizes = (
        columns * form.depth(channels) * 4,  # word
        columns * 4,  # scaled
        (columns + 1) * 4,  # place
        columns * 4,  # first
        form.machine.tile * form.panel * 4,  # products
        query_room * 4,  # sums
        query_room * 4,  # rows
        columns * query_room * (4 if form.exact else 2),  # matrix
        8,  # refused
    )
    if _held.workspace is None or any(need > have for need, have in zip(sizes, _held.sizes, strict=True)):
        _held.memory = tuple(_memory(size) for size in sizes)
        _held.sizes = sizes
        _held.workspace = Workspace(*(part.ctypes.data for part in _held.memory))
    return _held.workspace


def _memory(size: int) -> Bytes:
    """Bytes that start at a cache line."""
    whole = np.empty(size + LINE, np.uint8)
    return whole[-whole.ctypes.data % LINE :][:size]


class _Pool:
    """Threads that sleep when there is nothing to do (torch's spin), made on first use and after a fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = 0
        self._size = 0
        self._threads: ThreadPoolExecutor | None = None

    def of(self, size: int) -> ThreadPoolExecutor:
        """A pool of at least `size` threads of this process."""
        if self._process != os.getpid():  # a forked child has the object but none of the threads
            self._lock, self._threads, self._size, self._process = threading.Lock(), None, 0, os.getpid()
        with self._lock:
            if self._threads is None or self._size < size:
                self._threads = ThreadPoolExecutor(size, thread_name_prefix="elvis-transport")
                self._size = size
            return self._threads


_pool = _Pool()


def _share(count: int, threads: int, work: Callable[[int, int], None]) -> None:
    """Run `work(first, last)` over all of `range(count)`, the calling thread taking part."""
    threads = max(1, min(threads, count))
    if threads == 1:
        work(0, count)
        return
    step = max(1, count // (threads * SHARE))
    starts = iter(range(0, count, step))
    taking = threading.Lock()

    def take() -> None:
        while True:
            with taking:
                first = next(starts, None)
            if first is None:
                return
            work(first, min(first + step, count))

    others = [_pool.of(threads - 1).submit(take) for _ in range(threads - 1)]
    try:
        take()
    finally:
        wait(others)  # they write into memory of this call
    for other in others:
        other.result()


def _source(vectors: Tensor) -> str:
    return str(vectors.dtype).removeprefix("torch.")


def _up(count: int, group: int) -> int:
    return -(-count // group) * group
