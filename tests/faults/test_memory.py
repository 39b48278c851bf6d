"""Indexing streams: ten times the pictures need no more memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from faults.processes import HERE
from store_examples import draw_pictures

SCRIPT = """
import json, resource, sys
from pathlib import Path
from elvis.indexing import add_pictures, card_for
from elvis.store import Index
from store_examples import TwoColour, matcher
pictures, folder = map(Path, sys.argv[1:])
with Index.create(folder, card_for(TwoColour(), matcher(), keep_raw=True)) as index:
    report = add_pictures(index, [pictures], TwoColour(), matcher())
print(json.dumps([report.added, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))
"""


def peak(pictures: Path, folder: Path) -> tuple[int, int]:
    """Pictures added and peak resident memory in kB, measured in a process of its own."""
    command = [sys.executable, "-c", SCRIPT, str(pictures), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(HERE.parent)}, check=True)
    added, memory = json.loads(done.stdout)
    return added, memory


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX resource usage")
def test_two_thousand_pictures_need_the_memory_of_two_hundred(tmp_path: Path):
    draw_pictures(tmp_path / "few", 200, side=200)
    draw_pictures(tmp_path / "many", 2000, side=200)
    few, little = peak(tmp_path / "few", tmp_path / "few-index")
    many, much = peak(tmp_path / "many", tmp_path / "many-index")
    assert (few, many) == (200, 2000)
    assert much <= 1.1 * little, f"{little} kB for 200 pictures, {much} kB for 2,000"
