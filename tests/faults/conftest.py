"""Indexing processes that can be killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.processes import HERE, IndexingProcess, indexing_process


@pytest.fixture(scope="session")
def write_counter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that counts writes and kills at one of them, compiled."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if sys.platform != "linux" or compiler is None:
        pytest.skip("needs Linux and a C compiler to kill a process at an exact call")
    library = tmp_path_factory.mktemp("preload") / "kill_at_write.so"
    source = HERE / "kill_at_write.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    return library


@pytest.fixture(scope="module")
def killable(write_counter: Path) -> Iterator[IndexingProcess]:
    """An indexing process whose children die at the call that a job names."""
    with indexing_process(write_counter) as process:
        yield process


@pytest.fixture(scope="module")
def mortal() -> Iterator[IndexingProcess]:
    """An indexing process as it is."""
    if not hasattr(signal, "SIGKILL") or not hasattr(os, "fork"):
        pytest.skip("needs POSIX processes and signals")
    with indexing_process(None) as process:
        yield process
