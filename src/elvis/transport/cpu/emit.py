"""A small language inside Python for writing machine code: numbers with operators, arrays, loops.

Python runs once and writes LLVM's intermediate form; what is ordinary Python while that happens (a list, a `for`
over a Python `range`) is unrolled, and what is asked of `Code` happens when the machine code runs:

    code = Code(module, "double", array=ADDRESS, count=INT64)
    numbers = Array(code, code["array"], FLOAT)
    for i in code.range(code["count"]):        # a loop of the machine
        numbers[i] = numbers[i] * 2
    code.end()

A Python number beside a value becomes a constant of the value's type. Additions and products may be fused, nothing else
is reordered, so that rounding by adding and subtracting a large number stays what it says.
"""

from __future__ import annotations

import ctypes
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

FLOAT, DOUBLE = ir.FloatType(), ir.DoubleType()
INT8, INT16, INT32, INT64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
ADDRESS = ir.PointerType()
BYTES = {FLOAT: 4, DOUBLE: 8, INT8: 1, INT16: 2, INT32: 4, INT64: 8, ADDRESS: 8}
FROM_CTYPES: dict[type, Any] = {
    ctypes.c_void_p: ADDRESS,
    ctypes.c_int64: INT64,
    ctypes.c_float: FLOAT,
    ctypes.c_double: DOUBLE,
}


def vector(element: Any, lanes: int) -> Any:
    """The type of `lanes` numbers worked on together."""
    return ir.VectorType(element, lanes)


def constant(kind: Any, number: float) -> Any:
    """A constant of a scalar or vector type; a vector has it in all lanes."""
    if isinstance(kind, ir.VectorType):
        return ir.Constant(kind, [constant(kind.element, number).constant] * kind.count)
    if isinstance(kind, ir.IntType):
        return ir.Constant(kind, int(number))
    return ir.Constant(kind, ctypes.c_float(number).value if kind is FLOAT else float(number))


class Value:
    """A number or vector of the running code; operators append instructions to the function being written."""

    __slots__ = ("code", "raw")

    def __init__(self, code: Code, raw: Any) -> None:
        self.code, self.raw = code, raw

    @property
    def kind(self) -> Any:
        """Its LLVM type."""
        return self.raw.type

    @property
    def is_float(self) -> bool:
        """Whether its lanes are floating point."""
        element = self.kind.element if isinstance(self.kind, ir.VectorType) else self.kind
        return element in (FLOAT, DOUBLE)

    def _do(self, other: Value | float, on_floats: str, on_integers: str, *, swap: bool = False) -> Value:
        right = other.raw if isinstance(other, Value) else constant(self.kind, other)
        left, right = (right, self.raw) if swap else (self.raw, right)
        if self.is_float:
            return Value(self.code, getattr(self.code.build, on_floats)(left, right, flags=("contract",)))
        return Value(self.code, getattr(self.code.build, on_integers)(left, right))

    def __add__(self, other: Value | float) -> Value:
        return self._do(other, "fadd", "add")

    def __sub__(self, other: Value | float) -> Value:
        return self._do(other, "fsub", "sub")

    def __mul__(self, other: Value | float) -> Value:
        return self._do(other, "fmul", "mul")

    def __truediv__(self, other: Value | float) -> Value:
        return self._do(other, "fdiv", "")

    def __rtruediv__(self, other: float) -> Value:
        return self._do(other, "fdiv", "", swap=True)

    def __floordiv__(self, other: Value | int) -> Value:
        return self._do(other, "", "udiv")

    def __and__(self, other: Value | int) -> Value:
        return self._do(other, "", "and_")

    def __or__(self, other: Value | int) -> Value:
        return self._do(other, "", "or_")

    def __lshift__(self, bits: int) -> Value:
        return self._do(bits, "", "shl")

    def __rshift__(self, bits: int) -> Value:
        return self._do(bits, "", "lshr")

    def plus_in_any_order(self, other: Value) -> Value:
        """A sum of floats that the compiler may reorder, as to make a loop of it work in vectors."""
        return Value(self.code, self.code.build.fadd(self.raw, other.raw, flags=("reassoc", "contract")))

    def compare(self, operator: str, other: Value | float) -> Value:
        """One of < <= > >= ==, as a truth value (integers as unsigned)."""
        right = other.raw if isinstance(other, Value) else constant(self.kind, other)
        emit = self.code.build.fcmp_ordered if self.is_float else self.code.build.icmp_unsigned
        return Value(self.code, emit(operator, self.raw, right))

    def negated(self) -> Value:
        """The opposite truth value."""
        return Value(self.code, self.code.build.not_(self.raw))

    def bits_as(self, kind: Any) -> Value:
        """The same bits read as another type."""
        return Value(self.code, self.code.build.bitcast(self.raw, kind))

    def rounded_to(self, kind: Any) -> Value:
        """A float in another precision, an unsigned integer in another width."""
        build = self.code.build
        if self.is_float:
            return Value(self.code, (build.fpext if kind is DOUBLE else build.fptrunc)(self.raw, kind))
        wider = BYTES[kind] > BYTES[self.kind]
        return Value(self.code, (build.zext if wider else build.trunc)(self.raw, kind))

    def signed_to(self, kind: Any) -> Value:
        """A signed integer in a wider type."""
        return Value(self.code, self.code.build.sext(self.raw, kind))

    def as_float(self, kind: Any = FLOAT) -> Value:
        """A signed integer as a floating-point number of the given type."""
        return Value(self.code, self.code.build.sitofp(self.raw, kind))


class Variable:
    """A value that changes while the code runs, as a loop's sum; lives in a register."""

    __slots__ = ("place", "code", "kind")

    def __init__(self, code: Code, start: Value) -> None:
        self.code, self.kind = code, start.kind
        with code.build.goto_entry_block():
            self.place = code.build.alloca(start.kind)
        self.value = start

    @property
    def value(self) -> Value:
        """What it is now."""
        return Value(self.code, self.code.build.load(self.place, typ=self.kind))

    @value.setter
    def value(self, new: Value) -> None:
        self.code.build.store(new.raw, self.place)


class Array:
    """Numbers in memory from an address on; `array[i]` is one of them, `array.lanes(i, n)` a vector from there."""

    __slots__ = ("code", "address", "element", "aligned")

    def __init__(self, code: Code, address: Value, element: Any, *, aligned: bool = False) -> None:
        self.code, self.address, self.element, self.aligned = code, address, element, aligned

    def at(self, index: Value | int) -> Value:
        """The address of an element."""
        raw = index.raw if isinstance(index, Value) else constant(INT64, index)
        return Value(self.code, self.code.build.gep(self.address.raw, [raw], source_etype=self.element))

    def __getitem__(self, index: Value | int) -> Value:
        return self._load(index, self.element)

    def lanes(self, index: Value | int, count: int) -> Value:
        """`count` elements from `index` on."""
        return self._load(index, vector(self.element, count))

    def _load(self, index: Value | int, kind: Any) -> Value:
        loaded: Any = self.code.build.load(self.at(index).raw, typ=kind)
        loaded.align = self._alignment(kind)
        return Value(self.code, loaded)

    def __setitem__(self, index: Value | int, value: Value) -> None:
        self.code.build.store(value.raw, self.at(index).raw, align=self._alignment(value.kind))

    def _alignment(self, kind: Any) -> int:
        if isinstance(kind, ir.VectorType) and self.aligned:
            return BYTES[kind.element] * kind.count
        return BYTES[self.element]


class Code:
    """A function being written: arguments by name, loops, conditions and the few operations that are no operators."""

    def __init__(self, module: Any, name: str, result: Any = None, **arguments: Any) -> None:
        self.module = module
        kind = ir.FunctionType(ir.VoidType() if result is None else result, list(arguments.values()))
        self.function = ir.Function(module, kind, name)
        self.arguments: dict[str, Value] = {}
        self.build: Any = ir.IRBuilder(self.function.append_basic_block("entry"))
        body = self.function.append_basic_block("body")
        self.build.branch(body)
        self.build.position_at_end(body)
        for argument, raw in zip(arguments, self.function.args, strict=True):
            if raw.type == ADDRESS:
                raw.add_attribute("noalias")
            self.arguments[argument] = Value(self, raw)

    def __getitem__(self, argument: str) -> Value:
        return self.arguments[argument]

    def end(self, result: Value | None = None) -> None:
        """Return from the function."""
        if result is None:
            self.build.ret_void()
        else:
            self.build.ret(result.raw)

    def number(self, kind: Any, number: float) -> Value:
        """A constant."""
        return Value(self, constant(kind, number))

    def variable(self, start: Value) -> Variable:
        """A value that will change."""
        return Variable(self, start)

    def fields(self, address: Value, layout: type[ctypes.Structure]) -> dict[str, Value]:
        """All fields of a ctypes structure (each of eight bytes' step), read from memory."""
        values: dict[str, Value] = {}
        for name, kind, *_ in layout._fields_:
            place = Array(self, address, INT8).at(getattr(layout, name).offset)
            values[name] = Array(self, place, FROM_CTYPES[kind])[0]
        return values

    def range(self, stop: Value, start: Value | int = 0, step: int = 1, *, certain: bool = False) -> Iterator[Value]:
        """A loop of the machine; use it in a `for` that is never left early.

        `certain` says that it runs at least once: without the question the code around it stays straight.
        """
        first = start if isinstance(start, Value) else self.number(INT64, start)
        before = self.build.block
        body, after = (self.function.append_basic_block() for _ in range(2))
        if certain:
            self.build.branch(body)
        else:
            self.build.cbranch(self.build.icmp_unsigned("<", first.raw, stop.raw), body, after)
        self.build.position_at_end(body)
        index = self.build.phi(INT64)
        index.add_incoming(first.raw, before)
        yield Value(self, index)
        following = self.build.add(index, constant(INT64, step), flags=("nuw",))
        index.add_incoming(following, self.build.block)
        self.build.cbranch(self.build.icmp_unsigned("<", following, stop.raw), body, after)
        self.build.position_at_end(after)

    @contextmanager
    def when(self, condition: Value) -> Generator[None]:
        """Run what is inside only if the condition holds."""
        with self.build.if_then(condition.raw):
            yield

    def choose(self, condition: Value, yes: Value, no: Value) -> Value:
        """`yes` where the condition holds, else `no`, lane by lane."""
        return Value(self, self.build.select(condition.raw, yes.raw, no.raw))

    def largest(self, left: Value, right: Value | float) -> Value:
        """The larger of two floats, lane by lane; neither is NaN."""
        return self._pick(">", left, right)

    def smallest(self, left: Value, right: Value | float) -> Value:
        """The smaller of two floats, lane by lane; neither is NaN."""
        return self._pick("<", left, right)

    def _pick(self, operator: str, left: Value, right: Value | float) -> Value:
        other = right if isinstance(right, Value) else self.number(left.kind, right)
        flags = ("nnan", "nsz")
        chosen = self.build.fcmp_ordered(operator, left.raw, other.raw, flags=flags)
        return Value(self, self.build.select(chosen, left.raw, other.raw, flags=flags))

    def fused(self, a: Value, b: Value, c: Value) -> Value:
        """`a·b + c`, in one instruction where the machine has one."""
        return self.call("llvm.fmuladd." + _suffix(a.kind), a.kind, a, b, c)

    def root(self, value: Value) -> Value:
        """The square root."""
        return self.call("llvm.sqrt." + _suffix(value.kind), value.kind, value)

    def spread(self, scalar: Value, lanes: int) -> Value:
        """A vector with the same number in all lanes."""
        kind = vector(scalar.kind, lanes)
        empty = ir.Constant(kind, ir.Undefined)
        one = self.build.insert_element(empty, scalar.raw, constant(INT32, 0))
        return Value(self, self.build.shuffle_vector(one, empty, constant(vector(INT32, lanes), 0)))

    def total(self, values: Value) -> Value:
        """The sum over the lanes of a float vector."""
        return self._reduce("fadd", values, constant(FLOAT, 0))

    def peak(self, values: Value) -> Value:
        """The largest lane of a float vector."""
        return self._reduce("fmax", values)

    def _reduce(self, what: str, values: Value, *start: Any) -> Value:
        name = f"llvm.vector.reduce.{what}.{_suffix(values.kind)}"
        operands = [*start, values.raw]
        flags = ("nnan", "nsz", "reassoc")
        return Value(self, self.build.call(self._declared(name, FLOAT, operands), operands, fastmath=flags))

    def call(self, name: str, result: Any, *operands: Value) -> Value:
        """A function of this module, or an intrinsic of LLVM or of the machine."""
        raw = [operand.raw for operand in operands]
        return Value(self, self.build.call(self._declared(name, result, raw), raw))

    def _declared(self, name: str, result: Any, operands: Sequence[Any]) -> Any:
        known = self.module.globals.get(name)
        kind = ir.FunctionType(result, [operand.type for operand in operands])
        return known if known is not None else ir.Function(self.module, kind, name)


def _suffix(kind: Any) -> str:
    """How LLVM spells a type in the name of an intrinsic: f32, v16f32."""
    lanes = f"v{kind.count}" if isinstance(kind, ir.VectorType) else ""
    element = kind.element if isinstance(kind, ir.VectorType) else kind
    return f"{lanes}f{8 * BYTES[element]}"
