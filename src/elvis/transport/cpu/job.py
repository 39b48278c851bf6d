"""What Python and the compiled code hand to each other: structures in memory, read by both sides by field name."""

from __future__ import annotations

import ctypes


class Packing(ctypes.Structure):
    """What `pack` works on: a picture of N places and D channels, and the arrays described above."""

    _fields_ = (
        ("vectors", ctypes.c_void_p),  # (N, D) in the source's type
        ("mask", ctypes.c_void_p),  # (N,) bytes
        ("gain", ctypes.c_void_p),  # (N,) float32
        ("places", ctypes.c_int64),
        ("channels", ctypes.c_int64),
        ("steepness", ctypes.c_double),
        ("offset", ctypes.c_double),
        ("word", ctypes.c_void_p),
        ("panels", ctypes.c_void_p),
        ("scaled", ctypes.c_void_p),
        ("live", ctypes.c_void_p),  # 1 for a real descriptor, 0 beyond
        ("place", ctypes.c_void_p),
        ("count", ctypes.c_void_p),  # one 64-bit integer: how many are real
        ("refused", ctypes.c_void_p),  # one 64-bit integer: 1 if a descriptor is too long
    )


class Match(ctypes.Structure):
    """What `match` works on: B pairs of a packed query (the same for all, or one each) and a gallery picture."""

    _fields_ = (
        ("query_step", ctypes.c_int64),  # 0: one query for all; 1: one each
        ("query_places", ctypes.c_int64),  # M
        ("query_room", ctypes.c_int64),  # M rounded up to panels
        ("query_count", ctypes.c_void_p),  # (B,) and so on: see `read.Packing`
        ("query_place", ctypes.c_void_p),
        ("query_scaled", ctypes.c_void_p),
        ("query_live", ctypes.c_void_p),
        ("query_panels", ctypes.c_void_p),
        ("gallery_places", ctypes.c_int64),  # N
        ("gallery_vectors", ctypes.c_void_p),  # (B, N, D)
        ("gallery_mask", ctypes.c_void_p),  # (B, N)
        ("gallery_gain", ctypes.c_void_p),  # (B, N)
        ("channels", ctypes.c_int64),  # D
        ("rounds", ctypes.c_int64),
        ("steepness", ctypes.c_double),  # see `form.Scales`
        ("shift", ctypes.c_double),
        ("half", ctypes.c_double),
        ("corner", ctypes.c_double),  # w
        ("dust", ctypes.c_double),  # g
        ("query_strengths", ctypes.c_void_p),  # (B, M), zeros
        ("gallery_strengths", ctypes.c_void_p),  # (B, N), zeros
    )


class Workspace(ctypes.Structure):
    """What a thread needs for one pair."""

    _fields_ = (
        ("word", ctypes.c_void_p),
        ("scaled", ctypes.c_void_p),
        ("place", ctypes.c_void_p),
        ("first", ctypes.c_void_p),  # c at the start
        ("products", ctypes.c_void_p),  # of a tile and a panel
        ("sums", ctypes.c_void_p),
        ("rows", ctypes.c_void_p),
        ("matrix", ctypes.c_void_p),
        ("refused", ctypes.c_void_p),  # one 64-bit integer: 1 if a gallery descriptor is too long
    )
