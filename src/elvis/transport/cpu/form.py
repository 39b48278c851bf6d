"""Which numbers the kernel works with: the few choices that one generator turns into all of its forms."""

from __future__ import annotations

import math
from dataclasses import dataclass

from elvis.transport.cpu.machine import Machine

MARGIN = 1.035
"""Similarities up to this are represented: unit vectors may pass 1 a little by rounding."""
LONGEST = 1.01
"""Squared length from which a descriptor is refused, so that no similarity passes MARGIN."""
SLACK = 1 / 16
"""Binades kept free above the largest entry, so that rounding up cannot carry into a bit that is not there."""
MOST_BITS = 6
"""Exponent bits of a matrix entry: with 6, ten bits are left for the mantissa and λ may go down to 0.048."""


@dataclass(frozen=True, slots=True)
class Form:
    """A form of the kernel.

    Attributes:
        machine: whose instructions.
        exact: 32-bit product and matrix, for descriptors in float32; else 16-bit ones.
        exponent_bits: of a 16-bit matrix entry (no sign, the rest is mantissa); 0 for an exact one.
    """

    machine: Machine
    exact: bool
    exponent_bits: int

    @property
    def pairs(self) -> bool:
        """Whether the product takes pairs of 16-bit integers, descriptors being unit vectors times 32767."""
        return not self.exact and self.machine.pair_product is not None

    @property
    def panel(self) -> int:
        """Query descriptors worked on together: two vectors."""
        return 2 * self.machine.lanes

    @property
    def degree(self) -> int:
        """Of the polynomial for powers of two: its error stays below that of the matrix entries."""
        return 6 if self.exact else 4

    def depth(self, channels: int) -> int:
        """32-bit words of a descriptor: one for a channel, or for two as 16-bit integers."""
        return (channels + 1) // 2 if self.pairs else channels


@dataclass(frozen=True, slots=True)
class Scales:
    """Powers of two that keep every number of the kernel in the middle of its range.

    A matrix entry of 16 bits is the middle of a float32: no sign, the low bits of its exponent, the high bits of its
    mantissa. Such a float is tiny: the matrix holds K·2^shift, the shift being negative. Half of that is undone by the
    scaling of the columns and half by that of the rows, c·2^−half and r·2^(half − shift), which leaves the plan r K c
    and the equations as they are if a becomes a·2^(shift − half) and b becomes b·2^half.

    Attributes:
        steepness: log₂(e)/λ, so that exp(S/λ) = 2^(steepness·S).
        shift: of the matrix, a whole number.
        half: of the columns' scaling, a whole number.
    """

    steepness: float
    shift: float
    half: float


def choose(machine: Machine, temperature: float, *, exact: bool) -> tuple[Form, Scales]:
    """The form for a temperature: the fewest exponent bits that hold exp(±1/λ), so that the mantissa gets the most."""
    steepness = math.log2(math.e) / temperature
    if exact:
        return Form(machine, True, 0), Scales(steepness, 0.0, 0.0)
    reach = steepness * MARGIN
    top = math.ceil(reach + SLACK)
    bits = max(4, math.ceil(math.log2(reach + top + 1)))
    if bits > MOST_BITS:
        raise ValueError(f"temperature: the fast form of the kernel needs at least 0.05, got {temperature}")
    shift = 2**bits - 127 - top  # puts 2^top at the end of the range
    return Form(machine, False, bits), Scales(steepness, float(shift), float(shift // 2))
