"""What the figures were measured on, and a process in which they can be."""

import ctypes
import datetime
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

NEVER_MMAP, TRIM_THRESHOLD = -4, -1  # numbers of glibc's mallopt


def kind() -> str:
    """What two runs must share to be compared: processor, its best instruction set, number of cores."""
    from elvis.transport.cpu.machine import host

    form = host()
    return f"{form.cpu} ({form.name}), {torch.get_num_threads()} cores, {sys.platform}"


def description() -> dict:
    """The machine, the versions and the commit, as every line of the results carries them."""
    import llvmlite

    from elvis.transport.cpu.machine import host

    has = {part[1:] for part in host().features.split(",") if part.startswith("+")}
    wanted = (
        "avx2",
        "fma",
        "avx512f",
        "avx512vnni",
        "avx512bf16",
        "avxvnni",
        "amx-int8",
        "amx-bf16",
        "neon",
        "dotprod",
    )
    return {
        "machine": kind(),
        "cpu": _processor(),
        "features": [name for name in wanted if name in has],
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "llvmlite": llvmlite.__version__,
        },
        "commit": _commit(),
        "date": datetime.date.today().isoformat(),
    }


def keep_memory() -> None:
    """Let malloc keep what is freed: the published algorithm's 29 MB temporaries otherwise fault in anew each time."""
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):  # musl
        return
    if not (library.mallopt(NEVER_MMAP, 0) and library.mallopt(TRIM_THRESHOLD, 2**31 - 1)):
        raise RuntimeError("malloc did not accept its settings: the published algorithm would be measured disturbed")


def give_back_memory() -> None:
    """Let malloc return what is free to the system, so that what is used next shows as growth."""
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _commit() -> str:
    here = Path(__file__).parent
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=here, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"
