"""Descriptors of one picture as the kernel wants them: real ones only, in a row, in the product's type.

    word[r, k]  channel k of the r-th real descriptor, as float32, or channels 2k and 2k + 1 as 16-bit integers
    scaled[r]   2^(steepness·gain + offset), the scaled e^(gain/λ); 0 beyond the last real one
    place[r]    where the descriptor stood before padding was taken out

A query is also turned, once for all gallery pictures that it meets: panel by panel, word[k] of a panel's descriptors
side by side, so that a vector holds the same channel of several descriptors.
"""

from __future__ import annotations

from typing import Any

from elvis.transport.cpu.emit import ADDRESS, FLOAT, INT8, INT16, INT32, INT64, Array, Code, Value
from elvis.transport.cpu.form import LONGEST, Form
from elvis.transport.cpu.job import Packing
from elvis.transport.cpu.mathematics import NEAREST, power_of_two

UNIT = 32767.0
"""A 16-bit integer for one. No sum of products overflows 32 bits: of unit vectors it is at most 32767², by
Cauchy–Schwarz."""
SOURCES = {"float32": FLOAT, "float16": INT16, "bfloat16": INT16, "int8": INT8}
"""Types of stored descriptors, and what LLVM reads for them (half precision as plain bits: any machine can)."""


def define_read(module: Any, form: Form, source: str) -> None:
    """Write `read`, which fills word, scaled and place and returns how many descriptors are real.

    `refused` becomes 1 if one of them is longer than a unit vector: the matrix has no room for its similarities.
    """
    code = Code(
        module,
        "read",
        INT64,
        vectors=ADDRESS,
        mask=ADDRESS,
        gain=ADDRESS,
        places=INT64,
        channels=INT64,
        steepness=FLOAT,
        offset=FLOAT,
        group=INT64,
        word=ADDRESS,
        scaled=ADDRESS,
        place=ADDRESS,
        refused=ADDRESS,
    )
    code.function.linkage = "internal"
    mask, place = Array(code, code["mask"], INT8), Array(code, code["place"], INT32)
    gain, scaled = Array(code, code["gain"], FLOAT), Array(code, code["scaled"], FLOAT)
    vectors = Array(code, code["vectors"], SOURCES[source])
    channels = code["channels"]

    found = code.variable(code.number(INT64, 0))
    for i in code.range(code["places"]):
        place[found.value] = i.rounded_to(INT32)
        found.value = found.value + mask[i].rounded_to(INT64)
    count = found.value

    # A row of 16-bit integers is a whole number of words: an odd channel is followed by a zero.
    width = (channels + 1) // 2 * 2 if form.pairs else channels
    word = Array(code, code["word"], INT16 if form.pairs else FLOAT)
    for row in code.range(count):
        here = place[row].rounded_to(INT64)
        scaled[row] = _scaled(code, gain[here], form)
        from_, to = here * channels, row * width
        square = _square(code, vectors, from_, channels, source)
        if source == "int8":
            # int8 only says where a descriptor points: whatever its scale was, it is divided by its own length.
            factor = 1 / code.root(code.largest(square, 1.0))
        else:
            factor = code.number(FLOAT, 1)
            with code.when(square.compare("<", LONGEST).negated()):  # NaN is not below it
                Array(code, code["refused"], INT64)[0] = code.number(INT64, 1)
        if form.pairs:
            word[to + width - 1] = code.number(INT16, 0)
        for k in code.range(channels):
            word[to + k] = _stored(code, _number(code, vectors[from_ + k], source) * factor, form)

    # The last group is filled up with descriptors of zeros.
    group = code["group"]
    filled = (count + group - 1) // group * group
    for row in code.range(filled, start=count):
        scaled[row] = code.number(FLOAT, 0)
        for k in code.range(width):
            word[row * width + k] = code.number(word.element, 0)
    code.end(count)


def define_pack(module: Any, form: Form) -> None:
    """Write `pack(job)` for a query: what `read` does, then panel by panel."""
    code = Code(module, "pack", job=ADDRESS)
    job = code.fields(code["job"], Packing)
    names = ("vectors", "mask", "gain", "places", "channels")
    scales = (job[name].rounded_to(FLOAT) for name in ("steepness", "offset"))
    panel = code.number(INT64, form.panel)
    count = code.call(
        "read",
        INT64,
        *(job[name] for name in names),
        *scales,
        panel,
        job["word"],
        job["scaled"],
        job["place"],
        job["refused"],
    )
    Array(code, job["count"], INT64)[0] = count
    filled = (count + form.panel - 1) // form.panel * form.panel
    live = Array(code, job["live"], FLOAT)
    for i in code.range(filled):
        live[i] = code.choose(i.compare("<", count), code.number(FLOAT, 1), code.number(FLOAT, 0))
    depth = (job["channels"] + 1) // 2 if form.pairs else job["channels"]
    word, panels = Array(code, job["word"], INT32), Array(code, job["panels"], INT32)
    for first in code.range(filled, step=form.panel):
        for k in code.range(depth):
            for lane in code.range(panel):
                panels[first * depth + k * form.panel + lane] = word[(first + lane) * depth + k]
    code.end()


def _number(code: Code, stored: Value, source: str) -> Value:
    """A stored channel as float32."""
    if source == "float32":
        return stored
    if source == "int8":
        return stored.as_float()
    wide = stored.rounded_to(INT32)
    if source == "bfloat16":
        return (wide << 16).bits_as(FLOAT)
    # float16: exponent and mantissa move into place; the product sets the exponent's bias, also of the smallest.
    size = ((wide & 0x7FFF) << 13).bits_as(FLOAT) * 2.0**112
    return (size.bits_as(INT32) | ((wide & 0x8000) << 16)).bits_as(FLOAT)


def _square(code: Code, vectors: Array, first: Value, channels: Value, source: str) -> Value:
    """The squared length of a descriptor."""
    squares = code.variable(code.number(FLOAT, 0))
    for k in code.range(channels):
        channel = _number(code, vectors[first + k], source)
        squares.value = squares.value.plus_in_any_order(channel * channel)
    return squares.value


def _scaled(code: Code, gain: Value, form: Form) -> Value:
    """2^(steepness·gain + offset); 0 if that is too small for a float32."""
    exponent = gain * code["steepness"]
    within = code.largest(code.smallest(exponent + code["offset"], 127.0), -126.0)
    exponent, one = within - code["offset"], code.number(FLOAT, 1)
    power = power_of_two(code, exponent, one, code["offset"], form.degree)
    return code.choose(within.compare("<=", -126.0), code.number(FLOAT, 0), power)


def _stored(code: Code, number: Value, form: Form) -> Value:
    """A channel as the product takes it."""
    if not form.pairs:
        return number
    return (number * UNIT + NEAREST).bits_as(INT32).rounded_to(INT16)
