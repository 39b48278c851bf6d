"""Indexing streams: many times the pictures need no more memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from elvis.indexing import COMMIT_EVERY
from faults.processes import HERE
from store_examples import draw_pictures

SCRIPT = """
import json, resource, sys
from pathlib import Path
from elvis.indexing import add_pictures, card_for
from elvis.store import Index
from store_examples import TwoColour, matcher
pictures, folder = map(Path, sys.argv[1:3])
with Index.create(folder, card_for(TwoColour(), matcher(), keep_raw=True)) as index:
    report = add_pictures(index, [pictures], TwoColour(), matcher(), commit_every=int(sys.argv[3]))
print(json.dumps([report.added, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))
"""


def peak(pictures: Path, folder: Path, commit_every: int) -> int:
    """Peak resident memory in kB of adding pictures, measured in a process of its own."""
    command = [sys.executable, "-c", SCRIPT, str(pictures), str(folder), str(commit_every)]
    done = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(HERE.parent)}, check=True)
    added, memory = json.loads(done.stdout)
    assert added == len(list(pictures.iterdir()))
    return memory


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX resource usage")
@pytest.mark.parametrize(
    ("few", "commit_every"),
    [
        pytest.param(200, COMMIT_EVERY, id="as usual"),
        # The engine's code for joining files takes some 40 MB once it has run: here it does in both.
        pytest.param(600, 8, id="files joined in both"),
    ],
)
def test_two_thousand_pictures_need_the_memory_of_few(tmp_path: Path, few: int, commit_every: int):
    draw_pictures(tmp_path / "few", few, side=200)
    draw_pictures(tmp_path / "many", 2000, side=200)
    little = peak(tmp_path / "few", tmp_path / "few-index", commit_every)
    much = peak(tmp_path / "many", tmp_path / "many-index", commit_every)
    assert much <= 1.1 * little, f"{little} kB for {few} pictures, {much} kB for 2,000"
