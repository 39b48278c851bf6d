"""The fused kernel: from descriptors to the strongest match of each, a pair of pictures at a time, all in the cache.

With K = exp(S/λ), a = exp(u/λ), b = exp(v/λ), w = exp(ω/λ) and scalings r, ρ of the rows and c, γ of the columns, the
plan is r_i K_ij c_j and a round of Sinkhorn (`transport/scaling.py`) is

    r_i = 1 / (Σ_j K_ij c_j + a_i γ)          ρ = N / (Σ_j b_j c_j + w γ)
    c_j = 1 / (Σ_i K_ij r_i + b_j ρ)          γ = M / (Σ_i a_i r_i + w ρ)

starting from c = 1, γ = 1. Rows i are the query's descriptors, columns j the gallery's. K lies in memory column by
column, so that one pass over it makes a whole round: for a few columns at a time, Σ_i K_ij r_i gives c_j, and at once,
the columns being in the nearest cache, K_ij c_j is added to the sums Σ_j K_ij c_j that the next round's r needs. The
first such sums come free while K is made, and in the last round both sums become maxima:

    max_j P_ij = r_i · max_j (K_ij c_j)       max_i P_ij = c_j · max_i (K_ij r_i)

ω is unbounded. Where it is positive, e^(ω/λ) moves from w into ρ: with g = e^(−max(ω,0)/λ) and w = e^(min(ω,0)/λ) the
same equations hold for the ρ that is e^(ω/λ) times the other, if b is replaced by g·b. While mass piles up in the
corner, all scalings drift by up to N/M a round: c and γ are brought back to where they started every round, r and ρ
taking over the factor (the plan has only their products), and ρ, γ, g and w are in double precision.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from elvis.transport.cpu.emit import ADDRESS, DOUBLE, FLOAT, INT8, INT16, INT32, INT64, Array, Code, Value, vector
from elvis.transport.cpu.form import Form
from elvis.transport.cpu.job import Match, Workspace
from elvis.transport.cpu.mathematics import Matrix, power_of_two
from elvis.transport.cpu.read import SOURCES, UNIT, define_pack, define_read

LARGEST, LARGEST_SINGLE = 1e300, 1e38
"""Bounds of the dust-bins' scalings in double and single precision: a bin without any mass nearby stays finite."""


def packing_module(form: Form, source: str) -> Any:
    """A module with `pack(job)`."""
    module = ir.Module("pack")
    define_read(module, form, source)
    define_pack(module, form)
    return module


def matching_module(form: Form, source: str) -> Any:
    """A module with `match(job, workspace, first, last)`, which works on the pairs from first to before last."""
    module = ir.Module("match")
    define_read(module, form, source)
    code = Code(module, "match", job=ADDRESS, workspace=ADDRESS, first=INT64, last=INT64)
    job, work = code.fields(code["job"], Match), code.fields(code["workspace"], Workspace)
    for pair in code.range(code["last"], start=code["first"]):
        query = pair * job["query_step"]
        m = Array(code, job["query_count"], INT64)[query]
        n = _read_gallery(code, job, work, pair, form, source)
        with code.when((m * n).compare(">", 0)):
            _Pair(code, job, work, form, pair, query, m, n).solve()
    code.end()
    return module


def _read_gallery(
    code: Code, job: dict[str, Value], work: dict[str, Value], pair: Value, form: Form, source: str
) -> Value:
    places, channels = job["gallery_places"], job["channels"]
    start = pair * places
    return code.call(
        "read",
        INT64,
        Array(code, job["gallery_vectors"], SOURCES[source]).at(start * channels),
        Array(code, job["gallery_mask"], INT8).at(start),
        Array(code, job["gallery_gain"], FLOAT).at(start),
        places,
        channels,
        job["steepness"].rounded_to(FLOAT),
        job["half"].rounded_to(FLOAT),
        code.number(INT64, form.machine.tile),
        work["word"],
        work["scaled"],
        work["place"],
        work["refused"],
    )


class _Pair:
    """One pair being solved: `solve` in the order in which it happens."""

    def __init__(
        self,
        code: Code,
        job: dict[str, Value],
        work: dict[str, Value],
        form: Form,
        pair: Value,
        query: Value,
        m: Value,
        n: Value,
    ) -> None:
        self.code, self.job, self.form, self.m, self.n = code, job, form, m, n
        self.lanes, self.tile = form.machine.lanes, form.machine.tile
        self.whole, self.real = vector(INT32, self.lanes), vector(FLOAT, self.lanes)
        self.filled_rows = (m + form.panel - 1) // form.panel * form.panel
        self.filled_columns = (n + self.tile - 1) // self.tile * self.tile
        self.depth = (job["channels"] + 1) // 2 if form.pairs else job["channels"]
        room = job["query_room"] * query
        self.a = Array(code, Array(code, job["query_scaled"], FLOAT).at(room), FLOAT, aligned=True)
        self.live = Array(code, Array(code, job["query_live"], FLOAT).at(room), FLOAT, aligned=True)
        self.query_place = Array(code, Array(code, job["query_place"], INT32).at(room), INT32)
        element = INT32 if form.pairs else FLOAT
        panels = Array(code, job["query_panels"], element).at(room * self.depth)
        self.panels = Array(code, panels, element, aligned=True)
        self.word = Array(code, work["word"], element)
        self.b = Array(code, work["scaled"], FLOAT)
        self.gallery_place = Array(code, work["place"], INT32)
        self.first = Array(code, work["first"], FLOAT)
        self.products = Array(code, work["products"], element, aligned=True)
        self.sums = Array(code, work["sums"], FLOAT, aligned=True)
        self.rows = Array(code, work["rows"], FLOAT, aligned=True)
        self.matrix = Matrix(code, work["matrix"], form)
        self.stride = self.filled_rows if form.exact else self.filled_rows // 2
        strengths = Array(code, job["query_strengths"], FLOAT).at(pair * job["query_places"])
        self.query_strengths = Array(code, strengths, FLOAT)
        strengths = Array(code, job["gallery_strengths"], FLOAT).at(pair * job["gallery_places"])
        self.gallery_strengths = Array(code, strengths, FLOAT)
        self.gamma = code.variable(code.number(DOUBLE, 1))
        self.dusty = code.variable(code.number(FLOAT, 0))  # Σ b_j c_j
        self.all = code.variable(code.number(FLOAT, 0))  # Σ c_j
        half, minus = job["half"].rounded_to(FLOAT), code.number(FLOAT, -1)
        self.start = power_of_two(code, half, minus, code.number(FLOAT, 0), form.degree)  # c = 1, as scaled

    def solve(self) -> None:
        code = self.code
        for j in code.range(self.filled_columns, certain=True):
            is_real = j.compare("<", self.n)
            self.first[j] = code.choose(is_real, self.start, code.number(FLOAT, 0))
            self.all.value = self.all.value + self.first[j]
            self.dusty.value = self.dusty.value + self.b[j] * self.first[j]
        for i in code.range(self.filled_rows, step=self.lanes, certain=True):
            self.sums[i] = code.number(self.real, 0)
        self._make_matrix()
        for _ in code.range(self.job["rounds"] - 1):
            self._round(last=False)
        self._round(last=True)
        for i in code.range(self.m):
            self.query_strengths[self.query_place[i].rounded_to(INT64)] = self.rows[i] * self.sums[i]

    def _make_matrix(self) -> None:
        """K_ij = exp(S_ij/λ), and Σ_j K_ij c_j with the first c: 1 for a real column, 0 for one that fills the tile."""
        code, lanes = self.code, self.lanes
        steepness = self.job["steepness"] / (UNIT * UNIT if self.form.pairs else 1.0)
        steepness = code.spread(steepness.rounded_to(FLOAT), lanes)
        shift = code.spread(self.job["shift"].rounded_to(FLOAT), lanes)
        for column in code.range(self.filled_columns, step=self.tile, certain=True):
            for row in code.range(self.filled_rows, step=self.form.panel, certain=True):
                self._multiply(column, row)
                left = code.variable(self.sums.lanes(row, lanes))
                right = code.variable(self.sums.lanes(row + lanes, lanes))
                # A loop of the machine, as unrolling it would keep more numbers at once than there are registers.
                for t in code.range(code.number(INT64, self.tile), certain=True):
                    weight = code.spread(self.first[column + t], lanes)
                    entries: list[Value] = []
                    for side, sum_ in enumerate((left, right)):
                        product = self.products.lanes(t * self.form.panel + side * lanes, lanes)
                        similarity = self._as_real(product)
                        entries.append(power_of_two(code, similarity, steepness, shift, self.form.degree))
                        sum_.value = code.fused(entries[side], weight, sum_.value)
                    self.matrix.write(self._entry(column + t, row), entries[0], entries[1])
                self.sums[row], self.sums[row + lanes] = left.value, right.value

    def _multiply(self, column: Value, row: Value) -> None:
        """Into `products`: inner products of a tile's gallery descriptors with the two vectors of a panel's queries."""
        code, lanes = self.code, self.lanes
        zero = code.number(self.whole if self.form.pairs else self.real, 0)
        sums = [(code.variable(zero), code.variable(zero)) for _ in range(self.tile)]
        for k in code.range(self.depth, certain=True):
            at = row * self.depth + k * self.form.panel
            queries = self.panels.lanes(at, lanes), self.panels.lanes(at + lanes, lanes)
            for t in range(self.tile):
                channel = code.spread(self.word[(column + t) * self.depth + k], lanes)
                for sum_, query in zip(sums[t], queries, strict=True):
                    sum_.value = self._multiply_add(channel, query, sum_.value)
        for t, both in enumerate(sums):
            for side, sum_ in enumerate(both):
                self.products[t * self.form.panel + side * lanes] = sum_.value

    def _multiply_add(self, left: Value, right: Value, total: Value) -> Value:
        if not self.form.pairs:
            return self.code.fused(left, right, total)
        halves = vector(INT16, 2 * self.lanes)
        name = self.form.machine.pair_product or ""
        return total + self.code.call(name, self.whole, left.bits_as(halves), right.bits_as(halves))

    def _as_real(self, total: Value) -> Value:
        return total.as_float(self.real) if self.form.pairs else total

    def _entry(self, column: Value, row: Value) -> Value:
        """Where a panel of a column of K lies."""
        return column * self.stride + (row if self.form.exact else row // 2)

    def _round(self, *, last: bool) -> None:
        """One pass over K; in the last round `sums` becomes max_j K_ij c_j."""
        code, job = self.code, self.job
        drift = self._drift()
        sides = job["dust"] * self.dusty.value.rounded_to(DOUBLE) + job["corner"] * self.gamma.value
        rho = code.smallest(self.n.as_float(DOUBLE) * drift.rounded_to(DOUBLE) / sides, LARGEST)
        spent = self._fit_rows(drift)
        dust = self._narrow(job["dust"] * rho)
        self.dusty.value = self.all.value = code.number(FLOAT, 0)
        for column in code.range(self.filled_columns, step=self.tile, certain=True):
            scalings = self._fit_columns(column, dust, last=last)
            self._spread_columns(column, scalings, last=last)
        sides = spent.rounded_to(DOUBLE) + job["corner"] * rho
        self.gamma.value = code.smallest(self.m.as_float(DOUBLE) / sides, LARGEST)

    def _drift(self) -> Value:
        """The power of two by which c has left its start; r and ρ take it over, which leaves the plan as it is."""
        mean = self.all.value / (self.n.as_float() * self.start)
        return (mean.bits_as(INT32) & 0x7F800000).bits_as(FLOAT)

    def _narrow(self, scaling: Value) -> Value:
        """A dust-bin's scaling in single precision, kept finite: 0·LARGEST is 0, 0·∞ is not."""
        return self.code.smallest(scaling, LARGEST_SINGLE).rounded_to(FLOAT)

    def _fit_rows(self, drift: Value) -> Value:
        """r_i from the sums, which become 0; returns Σ a_i r_i."""
        code = self.code
        gamma = code.spread(self._narrow(self.gamma.value), self.lanes)
        drift = code.spread(drift, self.lanes)
        spent = code.variable(code.number(self.real, 0))
        for i in code.range(self.filled_rows, step=self.lanes, certain=True):
            a = self.a.lanes(i, self.lanes)
            mass = self.live.lanes(i, self.lanes) * drift
            r = mass / code.fused(a, gamma, self.sums.lanes(i, self.lanes))
            spent.value = code.fused(a, r, spent.value)
            self.rows[i] = r
            self.sums[i] = code.number(self.real, 0)
        return code.total(spent.value)

    def _fit_columns(self, column: Value, dust: Value, *, last: bool) -> list[Value]:
        """c_j of a tile; in the last round also the strengths of its columns."""
        code, zero = self.code, self.code.number(self.real, 0)
        totals = [code.variable(zero) for _ in range(self.tile)]
        peaks = [code.variable(zero) for _ in range(self.tile if last else 0)]
        for row in code.range(self.filled_rows, step=self.form.panel, certain=True):
            r = self.rows.lanes(row, self.lanes), self.rows.lanes(row + self.lanes, self.lanes)
            for t in range(self.tile):
                left, right = self.matrix.read(self._entry(column + t, row))
                if last:
                    left, right = left * r[0], right * r[1]
                    totals[t].value = totals[t].value + (left + right)
                    peaks[t].value = code.largest(peaks[t].value, code.largest(left, right))
                else:
                    totals[t].value = code.fused(right, r[1], code.fused(left, r[0], totals[t].value))
        scalings: list[Value] = []
        for t in range(self.tile):
            b, is_real = self.b[column + t], (column + t).compare("<", self.n)
            c = code.choose(is_real, 1 / (code.total(totals[t].value) + b * dust), code.number(FLOAT, 0))
            self.dusty.value = self.dusty.value + b * c
            self.all.value = self.all.value + c
            scalings.append(c)
            if last:
                with code.when(is_real):
                    at = self.gallery_place[column + t].rounded_to(INT64)
                    self.gallery_strengths[at] = c * code.peak(peaks[t].value)
        return scalings

    def _spread_columns(self, column: Value, scalings: list[Value], *, last: bool) -> None:
        """Add K_ij c_j of a tile to the sums over columns, or keep their maximum."""
        code, lanes = self.code, self.lanes
        factors = [code.spread(c, lanes) for c in scalings]
        for row in code.range(self.filled_rows, step=self.form.panel, certain=True):
            sums = self.sums.lanes(row, lanes), self.sums.lanes(row + lanes, lanes)
            for t, factor in enumerate(factors):
                entries = self.matrix.read(self._entry(column + t, row))
                if last:
                    sums = tuple(code.largest(s, k * factor) for s, k in zip(sums, entries, strict=True))
                else:
                    sums = tuple(code.fused(k, factor, s) for s, k in zip(sums, entries, strict=True))
            self.sums[row], self.sums[row + lanes] = sums
