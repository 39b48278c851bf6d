"""Several processes at one index: one writes, the others are told so; readers never wait."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from elvis.errors import IndexBusy
from elvis.store import Index, maintenance
from faults.processes import IndexingProcess
from store_examples import card, draw_pictures, record


def _hold(folder: str, ready, leave) -> None:
    with Index.open(folder, writable=True):
        ready.set()
        leave.wait()


def test_the_second_writer_is_told_who_the_first_is(tmp_path: Path):
    Index.create(tmp_path / "i", card()).close()
    context = multiprocessing.get_context("spawn")
    ready, leave = context.Event(), context.Event()
    process = context.Process(target=_hold, args=(str(tmp_path / "i"), ready, leave))
    process.start()
    assert ready.wait(120)
    with pytest.raises(IndexBusy, match=f"by process {process.pid} on "):
        Index.open(tmp_path / "i", writable=True)
    with Index.open(tmp_path / "i") as reader:
        assert len(reader) == 0
    process.kill()  # not even told to leave: the system gives the lock back
    process.join()
    Index.open(tmp_path / "i", writable=True).close()


def test_two_writers_in_one_process_are_kept_apart(tmp_path: Path):
    with (
        Index.create(tmp_path / "i", card()),
        pytest.raises(IndexBusy, match=f"by process {os.getpid()} on "),
    ):
        Index.open(tmp_path / "i", writable=True)
    with pytest.raises(IndexBusy), Index.open(tmp_path / "i", writable=True):
        Index.create(tmp_path / "i", card())


def test_a_reader_sees_a_committed_state_at_every_moment_of_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(maintenance, "MANY_FILES", 4)
    folder, failures, seen = tmp_path / "i", list[BaseException](), set[int]()
    ended = threading.Event()
    with Index.create(folder, card()) as writer:
        writer.put([record(number) for number in range(3)])

        def read() -> None:
            try:
                long_lived = Index.open(folder)
                while not ended.is_set():
                    with Index.open(folder) as index:
                        paths = index.paths()
                        assert len(paths) % 3 == 0  # batches of three come and go as a whole
                        assert len(paths) == len(set(paths)) == len(index)
                        found = index.nearest(np.ones(6), 4)
                        assert len(index.descriptors([each.row_id for each in found])) == len(found)
                        seen.add(len(paths))
                    found = long_lived.nearest(np.ones(6), 3)
                    assert len(long_lived.descriptors([each.row_id for each in found])) == 3
            except BaseException as error:
                failures.append(error)

        reader = threading.Thread(target=read)
        reader.start()
        for start in range(3, 60, 3):
            writer.put([record(number) for number in range(start, start + 3)])
            if start % 12 == 0:
                writer.remove([record(number).path for number in range(start, start + 3)])
                writer.compact()
        ended.set()
        reader.join()
    assert not failures, failures
    assert len(seen) > 2


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
def test_control_c_in_another_process_leaves_a_sound_index(mortal: IndexingProcess, tmp_path: Path):
    draw_pictures(tmp_path / "pictures", 300)
    log = mortal.start(tmp_path, kill_at=None, commit_every=4, change=False)
    while not (log.exists() and "committed 8" in log.read_text()):
        time.sleep(0.01)
    children = Path(f"/proc/{mortal.process.pid}/task/{mortal.process.pid}/children")
    if not children.exists():
        pytest.skip("needs /proc")
    for child in children.read_text().split():
        os.kill(int(child), signal.SIGINT)
    assert mortal.status() == 1
    committed = max(int(line.split()[1]) for line in log.read_text().splitlines() if line.startswith("committed"))
    with Index.open(tmp_path / "index") as index:
        assert len(index) >= committed
        assert len(index) < 300
        assert index.verify().sound
    Index.open(tmp_path / "index", writable=True).close()
