"""A process that indexes pictures when told to, each time in a child that may be killed.

Reads one JSON line a job: `index`, `pictures`, `log` (a file that gets one line a commit, after it was reported) and
`kill_at` (0: only count). Answers with the exit status of the child and, where it lived, the number of calls that
changed the index. Importing is done once, here; the table engine, which cannot be forked, is imported by the child.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from PIL import Image

from elvis.errors import IndexMissing
from elvis.indexing import Progress, add_pictures, card_for
from elvis.store import Index, maintenance
from store_examples import TwoColour, matcher


def run(job: dict[str, Any]) -> None:
    """Makes an index, adds pictures, joins files, changes one picture, loses one: every kind of write."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may have it ignored
    import lancedb  # noqa: F401  before the counting begins

    pictures, log = Path(job["pictures"]), open(job["log"], "a", buffering=1)  # noqa: SIM115
    extractor, model = TwoColour(), matcher()
    maintenance.MANY_FILES = 2
    watcher = ctypes.CDLL(None)
    if job["kill_at"] is not None:
        watcher.watch_writes(str(job["index"]).encode(), ctypes.c_long(job["kill_at"]))

    def told(progress: Progress) -> None:
        log.write(f"committed {progress.committed}\n")

    try:
        index = Index.open(job["index"], writable=True)
    except IndexMissing:
        index = Index.create(job["index"], card_for(extractor, model))
    with index:
        log.write("opened\n")
        options = {"commit_every": job["commit_every"], "prune": True, "on_progress": told}
        add_pictures(index, [pictures], extractor, model, **options)
        log.write("added\n")
        if job["change"]:
            Image.new("RGB", (50, 40), "red").save(pictures / "00001.png")
            (pictures / "00002.png").unlink()
            add_pictures(index, [pictures], extractor, model, commit_every=job["commit_every"], prune=True)
            log.write("changed\n")
    if job["kill_at"] is not None:
        watcher.watched_writes.restype = ctypes.c_long
        log.write(f"calls {watcher.watched_writes()}\n")


def _answer(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    _answer("ready")
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                run(json.loads(line))
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        _answer(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))


if __name__ == "__main__":
    main()
