"""The fused kernel in Triton: the same mathematics as `cpu/kernel.py`, one block of threads for a pair of pictures.

K is made by the tensor cores, block by block, and kept in a scratch of the block of threads, column by column, as
float16 (or float32); the first row sums come with it. Each round is one pass over K: some columns at a time come into
registers whole, Σ_i K_ij r_i gives their c_j, and K_ij c_j is added to the row sums without leaving the registers. The
plan is never written; in the last round both sums become maxima.

On paper, for 600 × 600 × 128 and ten rounds on an H200 (4.8 TB/s): 0.77 MB of K written once and read ten times,
0.15 MB of descriptors: 8.6 MB, 1.8 µs a pair if nothing stays in the 50 MB of L2 cache and the memory runs at full
speed; 92 MFLOP of tensor cores (0.1 µs), 0.36 M exponentials (0.1 µs) and 14 M other operations on 1,024 rows (0.4 µs)
hide behind that. This has not run on a GPU: it is proved in Triton's interpreter and compiles for one, no more.
"""
# Triton reads this file's source itself: types are its own, and most arguments have none.
# ruff: noqa: ANN001, ANN201
# pyright: basic, reportMissingImports=false, reportCallIssue=false, reportArgumentType=false
# pyright: reportOptionalMemberAccess=false, reportAttributeAccessIssue=false, reportIndexIssue=false
# pyright: reportOperatorIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def match(
    query,  # (1 or B, M, D)
    query_gain,  # (1 or B, M)
    query_mask,
    gallery,  # (B, N, D)
    gallery_gain,  # (B, N)
    gallery_mask,
    constants,  # (3,) float64: log₂(e)/λ, w, g; see cpu/kernel.py
    matrix,  # (programs, N, room for M) scratch
    sums,  # (programs, room for M) scratch
    query_strengths,  # (B, M), zeros
    gallery_strengths,  # (B, N), zeros
    pairs,
    query_step,  # 0: one query for all; 1: one each
    m_places,
    m_room,  # M rounded up to 64: whole blocks, wide loads
    n_places,
    channels,
    rounds,
    PRODUCT: tl.constexpr,  # type of the factors in the product
    ROWS: tl.constexpr,  # M rounded up to a power of two
    COLUMNS: tl.constexpr,  # columns of K in registers at once
    STAGES: tl.constexpr,  # of loading ahead
    BLOCK: tl.constexpr,  # rows and columns of a block of the product
    DEPTH: tl.constexpr,  # channels of a step of the product
    QUERY_INT8: tl.constexpr,
    GALLERY_INT8: tl.constexpr,
):
    """Strengths of the pairs that fall to this program."""
    program = tl.program_id(0).to(tl.int64)
    matrix += program * n_places * m_room
    sums += program * m_room
    for number in range(tl.program_id(0), pairs, tl.num_programs(0)):
        pair = tl.full((), number, tl.int64)
        which = pair * query_step
        q, u, real_rows = (
            query + which * m_places * channels,
            query_gain + which * m_places,
            query_mask + which * m_places,
        )
        x, v = gallery + pair * n_places * channels, gallery_gain + pair * n_places
        real_columns = gallery_mask + pair * n_places
        steepness = tl.load(constants).to(tl.float32)
        tl.debug_barrier()  # the scratch is free again
        make_matrix(
            q,
            real_rows,
            x,
            real_columns,
            matrix,
            sums,
            m_places,
            m_room,
            n_places,
            channels,
            steepness,
            PRODUCT,
            BLOCK,
            DEPTH,
            QUERY_INT8,
            GALLERY_INT8,
        )
        tl.debug_barrier()  # all of K is there

        i = tl.arange(0, ROWS)
        live = tl.load(real_rows + i, mask=i < m_places, other=0) != 0
        a = tl.where(live, tl.exp2(tl.load(u + i, mask=live, other=0.0).to(tl.float32) * steepness), 0.0)
        s = tl.load(sums + i, mask=i < m_room, other=1.0)
        m = tl.sum(live.to(tl.float32))
        n, dusty = start_columns(v, real_columns, n_places, steepness, COLUMNS)
        if (m > 0) & (n > 0):
            gamma = tl.full((), 1, tl.float64)
            total = n
            for _ in range(rounds - 1):
                s, r, gamma, dusty, total = sweep(
                    matrix, v, real_columns, constants, gallery_strengths, s, a, live, gamma, dusty, total,
                    m, n, m_room, n_places, steepness, ROWS, COLUMNS, STAGES, False,
                )  # fmt: skip
            s, r, gamma, dusty, total = sweep(
                matrix, v, real_columns, constants, gallery_strengths + pair * n_places, s, a, live, gamma, dusty,
                total, m, n, m_room, n_places, steepness, ROWS, COLUMNS, STAGES, True,
            )  # fmt: skip
            tl.store(query_strengths + pair * m_places + i, r * s, mask=live)


@triton.jit
def make_matrix(
    q,
    real_rows,
    x,
    real_columns,
    matrix,
    sums,
    m_places,
    m_room,
    n_places,
    channels,
    steepness,
    PRODUCT: tl.constexpr,
    BLOCK: tl.constexpr,
    DEPTH: tl.constexpr,
    QUERY_INT8: tl.constexpr,
    GALLERY_INT8: tl.constexpr,
):
    """K_ij = exp(S_ij/λ) and Σ_j K_ij; an int8 descriptor only says where it points and is divided by its length."""
    for row in range(0, m_places, BLOCK):
        i = row + tl.arange(0, BLOCK)
        row_is_real = tl.load(real_rows + i, mask=i < m_places, other=0) != 0
        total = tl.zeros((BLOCK,), tl.float32)
        for column in range(0, n_places, BLOCK):
            j = column + tl.arange(0, BLOCK)
            column_is_real = tl.load(real_columns + j, mask=j < n_places, other=0) != 0
            product = tl.zeros((BLOCK, BLOCK), tl.float32)
            q_squares, x_squares = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
            for first in range(0, channels, DEPTH):
                k = first + tl.arange(0, DEPTH)
                inside = k < channels
                qs = tl.load(q + i[:, None] * channels + k, mask=row_is_real[:, None] & inside, other=0).to(PRODUCT)
                xs = tl.load(x + j[:, None] * channels + k, mask=column_is_real[:, None] & inside, other=0).to(PRODUCT)
                product = tl.dot(xs, tl.trans(qs), product, input_precision="ieee")
                if QUERY_INT8:
                    q_squares += tl.sum(qs.to(tl.float32) * qs.to(tl.float32), axis=1)
                if GALLERY_INT8:
                    x_squares += tl.sum(xs.to(tl.float32) * xs.to(tl.float32), axis=1)
            if QUERY_INT8:
                product /= tl.sqrt(tl.maximum(q_squares, 1.0))[None, :]
            if GALLERY_INT8:
                product /= tl.sqrt(tl.maximum(x_squares, 1.0))[:, None]
            kernel = tl.exp2(product * steepness).to(matrix.dtype.element_ty)
            inside = (j < n_places)[:, None] & (i < m_room)[None, :]
            tl.store(matrix + j[:, None] * m_room + i[None, :], kernel, mask=inside)
            total += tl.sum(tl.where(column_is_real[:, None], kernel.to(tl.float32), 0.0), axis=0)
        tl.store(sums + i, total, mask=i < m_room)


@triton.jit
def start_columns(v, real_columns, n_places, steepness, COLUMNS: tl.constexpr):
    """How many columns are real, and Σ b_j c_j at the start."""
    n = tl.zeros((COLUMNS,), tl.float32)
    dusty = tl.zeros((COLUMNS,), tl.float32)
    for column in range(0, n_places, COLUMNS):
        j = column + tl.arange(0, COLUMNS)
        is_real = tl.load(real_columns + j, mask=j < n_places, other=0) != 0
        n += is_real.to(tl.float32)
        dusty += tl.where(is_real, tl.exp2(tl.load(v + j, mask=is_real, other=0.0).to(tl.float32) * steepness), 0.0)
    return tl.sum(n), tl.sum(dusty)


@triton.jit
def sweep(
    matrix,
    v,
    real_columns,
    constants,
    gallery_strengths,
    s,
    a,
    live,
    gamma,
    dusty,
    total,
    m,
    n,
    m_room,
    n_places,
    steepness,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STAGES: tl.constexpr,
    LAST: tl.constexpr,
):
    """One round: r and ρ from the row sums, then c and the next row sums (in the last round, maxima)."""
    corner, dust = tl.load(constants + 1), tl.load(constants + 2)
    drift = tl.exp2(tl.floor(tl.log2(total / n)))
    rho = tl.minimum((n * drift).to(tl.float64) / (dust * dusty.to(tl.float64) + corner * gamma), 1e300)
    taken = s + a * tl.minimum(gamma, 1e38).to(tl.float32)
    r = tl.where(live, drift / tl.where(live, taken, 1.0), 0.0)
    spent = tl.sum(a * r)
    rho_dust = tl.minimum(dust * rho, 1e38).to(tl.float32)
    i = tl.arange(0, ROWS)
    s = tl.zeros((ROWS,), tl.float32)
    dusty = dusty * 0
    total = total * 0
    for column in tl.range(0, n_places, COLUMNS, num_stages=STAGES):
        j = column + tl.arange(0, COLUMNS)
        is_real = tl.load(real_columns + j, mask=j < n_places, other=0) != 0
        b = tl.where(is_real, tl.exp2(tl.load(v + j, mask=is_real, other=0.0).to(tl.float32) * steepness), 0.0)
        # Not masked by what is real, which would break wide loads: r and c are 0 at padding.
        inside = (j < n_places)[:, None] & (i < m_room)[None, :]
        kernel = tl.load(matrix + j[:, None] * m_room + i[None, :], mask=inside, other=0.0).to(tl.float32)
        rows = kernel * r[None, :]
        c = tl.where(is_real, 1.0 / tl.where(is_real, tl.sum(rows, axis=1) + b * rho_dust, 1.0), 0.0)
        dusty += tl.sum(b * c)
        total += tl.sum(c)
        columns = kernel * c[:, None]
        if LAST:
            tl.store(gallery_strengths + j, c * tl.max(rows, axis=1), mask=is_real)
            s = tl.maximum(s, tl.max(columns, axis=0))
        else:
            s += tl.sum(columns, axis=0)
    gamma = tl.minimum(m.to(tl.float64) / (spent.to(tl.float64) + corner * rho), 1e300)
    return s, r, gamma, dusty, total
