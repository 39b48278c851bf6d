"""A full disk or quota: one line, what was committed is served, and space lets the same command go on."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from elvis.errors import DiskFull
from elvis.indexing import add_pictures, card_for
from elvis.store import Index
from store_examples import TwoColour, card, draw_pictures, matcher, record


def _add_with_limits(folder: str, limits: list[int], answer) -> None:
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Index.open(folder, writable=True) as index:
        for limit in limits:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))
            try:
                index.put([record(number, count=3000) for number in range(10, 20)])
                answer.put("no error")
            except DiskFull as error:
                answer.put((str(error), len(index), len(index.nearest(np.ones(6), 5))))


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX resource limits")
def test_a_file_that_may_not_grow_is_a_full_disk(tmp_path: Path):
    with Index.create(tmp_path / "i", card()) as index:
        index.put([record(number) for number in range(5)])
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    limits = [100, 1_000, 100_000]
    process = context.Process(target=_add_with_limits, args=(str(tmp_path / "i"), limits, answer))
    process.start()
    for _ in limits:
        told = answer.get(timeout=120)
        assert told != "no error"
        message, pictures, found = told
        assert "full while adding 10 pictures" in message
        assert "\n" not in message
        assert (pictures, found) == (5, 5)
    process.join()
    with Index.open(tmp_path / "i", writable=True) as index:
        assert index.verify().sound
        index.put([record(number, count=3000) for number in range(10, 20)])
        assert len(index) == 15
        assert index.verify().sound


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 250 kB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=250k", "tmpfs", str(disk)]
    if sys.platform != "linux" or os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("may not mount a small file system here")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as stream, contextlib.suppress(OSError):
        while True:
            stream.write(bytes(4096))


def test_a_full_disk_stops_indexing_and_nothing_else(small_disk: Path, tmp_path: Path):
    draw_pictures(tmp_path / "pictures", 200)
    with Index.create(small_disk / "i", card_for(TwoColour(), matcher())) as index:
        with pytest.raises(DiskFull, match=r"full while adding .* run the same command again"):
            add_pictures(index, [tmp_path / "pictures"], TwoColour(), matcher(), commit_every=5)
        committed = len(index)
        assert 0 < committed < 200
    fill(small_disk / "filler")
    with Index.open(small_disk / "i") as index:  # not a byte is left
        assert len(index.nearest(np.ones(6), 1000)) == committed
        assert index.verify().sound
    with Index.open(small_disk / "i", writable=True) as index, pytest.raises(DiskFull):
        add_pictures(index, [tmp_path / "pictures"], TwoColour(), matcher(), commit_every=5)
    subprocess.run(["mount", "-o", "remount,size=50m", str(small_disk)], check=True)
    with Index.open(small_disk / "i", writable=True) as index:
        report = add_pictures(index, [tmp_path / "pictures"], TwoColour(), matcher())
        assert report.added + report.unchanged == 200
        assert report.unchanged >= committed
        assert index.verify().sound
