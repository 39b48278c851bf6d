"""Starts `indexing_process.py`, whose children can be killed at an exact file-system call."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CALLS = (
    "write,pwrite64,writev,sendfile,copy_file_range,ftruncate,fsync,fdatasync,rename,renameat,renameat2,"
    "link,linkat,unlink,unlinkat,rmdir,mkdir,mkdirat,open,openat,creat"
)


@dataclass
class IndexingProcess:
    """See `indexing_process.py`; `run` gives the exit status and the lines of the log."""

    process: subprocess.Popen[str]

    def start(self, folder: Path, *, kill_at: int | None, commit_every: int = 3, change: bool = True) -> Path:
        log = folder / "log"
        log.unlink(missing_ok=True)
        job: dict[str, Any] = {
            "index": str(folder / "index"),
            "pictures": str(folder / "pictures"),
            "log": str(log),
            "kill_at": kill_at,
            "commit_every": commit_every,
            "change": change,
        }
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        return log

    def status(self) -> int:
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())

    def run(self, folder: Path, **options: Any) -> tuple[int, list[str]]:
        log = self.start(folder, **options)
        status = self.status()
        return status, log.read_text().splitlines() if log.exists() else []


@contextlib.contextmanager
def indexing_process(preload: Path | None, *before: str) -> Iterator[IndexingProcess]:
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    if preload is not None:
        environment["LD_PRELOAD"] = str(preload)
    process = subprocess.Popen(
        [*before, sys.executable, str(HERE / "indexing_process.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "ready\n"
        yield IndexingProcess(process)
        process.stdin.close()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stdin.close()
