"""What the processor can do, and turning LLVM's intermediate form into a function of this process."""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass
from functools import cache
from typing import Any

from llvmlite import binding


@dataclass(frozen=True, slots=True)
class Machine:
    """An instruction set, as far as the kernel's form depends on it.

    Attributes:
        name: for people and reports.
        lanes: 32-bit numbers in a vector register.
        tile: gallery descriptors worked on together: 2·tile sums, two query vectors and one of the gallery must fit
            the registers (32 on AVX-512 and arm64, else 16).
        pair_product: the intrinsic that multiplies pairs of 16-bit integers and adds the two products, or None where
            there is none: arm64 multiplies 32-bit floats just as fast as 16-bit integers.
        triple: LLVM's name of architecture and system.
        cpu: LLVM's name of the processor.
        features: what it has, in LLVM's spelling; empty: what `cpu` implies.
    """

    name: str
    lanes: int
    tile: int
    pair_product: str | None
    triple: str
    cpu: str
    features: str = ""


@cache
def host() -> Machine:
    """The fastest form that this processor and its operating system allow, found by asking it."""
    triple = binding.get_process_triple()
    cpu = binding.get_host_cpu_name()
    try:
        features = binding.get_host_cpu_features()
    except RuntimeError:  # LLVM cannot ask some systems; the processor's name is then all there is
        features = {}
    spelled = ",".join(("+" if on else "-") + name for name, on in sorted(features.items()))
    if not triple.startswith(("x86_64", "amd64")):
        return Machine("plain", 4, 12, None, triple, cpu, spelled)
    if all(features.get(name) for name in ("avx512f", "avx512bw", "avx512dq", "avx512vl")):
        # Some processors ask for half vectors to keep their clock up; this kernel is worth full ones.
        return Machine("avx512", 16, 12, "llvm.x86.avx512.pmaddw.d.512", triple, cpu, spelled + ",-prefer-256-bit")
    if features.get("avx2") and features.get("fma"):
        return Machine("avx2", 8, 6, "llvm.x86.avx2.pmadd.wd", triple, cpu, spelled)
    return Machine("sse2", 4, 6, "llvm.x86.sse2.pmadd.wd", triple, cpu, spelled)


def broken() -> str | None:
    """Why nothing can be compiled for this processor, or None."""
    try:
        _started()
        machine = host()
        target = binding.Target.from_triple(machine.triple)
        target.create_target_machine(cpu=machine.cpu, features=machine.features, jit=True)
    except RuntimeError as error:
        return f"llvmlite cannot write machine code for this processor ({error})"
    return None


_compiling = threading.Lock()  # LLVM's global state is not for two threads at once


@cache
def _started() -> None:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()


class Compiled:
    """The machine code of a module; functions live as long as it does."""

    def __init__(self, module: Any, machine: Machine) -> None:
        with _compiling:
            target, parsed = optimised(module, machine)
            self._engine = binding.create_mcjit_compiler(parsed, target)
            self._engine.finalize_object()

    def function(self, name: str, *arguments: type) -> Any:
        """A function that returns nothing, to be called from Python; it runs without the interpreter's lock."""
        return ctypes.CFUNCTYPE(None, *arguments)(self._engine.get_function_address(name))


def optimised(module: Any, machine: Machine) -> tuple[Any, Any]:
    """LLVM's target for a machine, and the module in optimised form for it."""
    _started()
    target = binding.Target.from_triple(machine.triple).create_target_machine(
        cpu=machine.cpu, features=machine.features, opt=3, jit=True
    )
    module.triple = machine.triple
    module.data_layout = str(target.target_data)
    parsed = binding.parse_assembly(str(module))
    parsed.verify()
    options = binding.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = True
    options.loop_unrolling = False
    passes = binding.create_pass_builder(target, options)
    passes.getModulePassManager().run(parsed, passes)
    return target, parsed
