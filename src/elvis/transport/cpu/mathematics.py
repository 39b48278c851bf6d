"""Powers of two without a library, and the two forms of a matrix entry; for vectors and single numbers alike."""

from __future__ import annotations

from functools import cache

import numpy as np

from elvis.transport.cpu.emit import FLOAT, INT32, Array, Code, Value, vector
from elvis.transport.cpu.form import Form

NEAREST = 1.5 * 2.0**23
"""Added to a float32 below 2^22 in size it leaves the nearest integer, which then stands in the lowest bits."""


@cache
def _polynomial(degree: int) -> tuple[float, ...]:
    """2^f for f in [−½, ½] by interpolation in Chebyshev's points, highest power first."""
    fitted = np.polynomial.Chebyshev.interpolate(np.exp2, degree, domain=[-0.5, 0.5])
    return tuple(float(x) for x in fitted.convert(kind=np.polynomial.Polynomial).coef[::-1])


def power_of_two(code: Code, x: Value, slope: Value, offset: Value, degree: int) -> Value:
    """2^t for t = slope·x + offset in [−126, 127]; the offset is a whole number.

    2^t = 2^n · 2^f with n the integer nearest to t and f = t − n: a polynomial for 2^f, n added to its exponent's bits.
    """
    kind = x.kind
    whole = INT32 if kind is FLOAT else vector(INT32, kind.count)
    base = offset + NEAREST
    n = code.fused(slope, x, base)  # NEAREST + n
    f = code.fused(slope, x, base - n)
    first, *others = _polynomial(degree)
    power = code.number(kind, first)
    for coefficient in others:
        power = code.fused(power, f, code.number(kind, coefficient))
    return (power.bits_as(whole) + (n.bits_as(whole) << 23)).bits_as(kind)


class Matrix:
    """K, gallery descriptor by gallery descriptor; entries are written and read two vectors at a time.

    A 16-bit entry is a float32 without its sign, the upper bits of its exponent (which are zero, see `form.Scales`) and
    the lower bits of its mantissa. Two of them share a word, the first in the upper half:

        first   word >> gap                       the second's bits are noise below the first's last bit, and `write`
                                                  chooses the first so that the noise rounds it correctly
        second  (word << (16 − gap)) without the gap
    """

    def __init__(self, code: Code, address: Value, form: Form) -> None:
        self.form, self.lanes = form, form.machine.lanes
        self.gap = 9 - form.exponent_bits  # sign and unused exponent bits
        self.array = Array(code, address, FLOAT if form.exact else INT32, aligned=True)
        self.words = form.panel if form.exact else self.lanes  # of a panel

    def write(self, index: Value, first: Value, second: Value) -> None:
        """Store the panel at a word."""
        if self.form.exact:
            self.array[index] = first
            self.array[index + self.lanes] = second
            return
        whole = vector(INT32, self.lanes)
        drop = 16 - self.gap
        low = (second.bits_as(whole) + (1 << (drop - 1))) >> drop
        high = ((first.bits_as(whole) << self.gap) - low + 0x8000) & -0x10000
        self.array[index] = high | low

    def read(self, index: Value) -> tuple[Value, Value]:
        """The two vectors of the panel at a word."""
        if self.form.exact:
            return self.array.lanes(index, self.lanes), self.array.lanes(index + self.lanes, self.lanes)
        kind = vector(FLOAT, self.lanes)
        word = self.array.lanes(index, self.lanes)
        second = (word << (16 - self.gap)) & ((1 << (32 - self.gap)) - 1)
        return (word >> self.gap).bits_as(kind), second.bits_as(kind)
