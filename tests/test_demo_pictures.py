"""The pictures of the demo: what `make demo` and its truth rely on, and that everyone is credited."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parents[1]
DEMO = ROOT / "demo"
PICTURES = sorted((DEMO / "pictures").glob("*"))
QUERIES = sorted((DEMO / "queries").glob("*"))


def truth():
    with (DEMO / "truth.csv").open(newline="") as stream:
        return [(row["query"], row["path"]) for row in csv.DictReader(stream)]


def test_small_enough_to_ship():
    assert 36 <= len(PICTURES) <= 48
    assert 4 <= len(QUERIES) <= 6
    assert sum(path.stat().st_size for path in DEMO.rglob("*") if path.is_file()) < 6_000_000


@pytest.mark.parametrize("path", [*PICTURES, *QUERIES], ids=lambda path: path.name)
def test_plain_jpegs(path):
    with Image.open(path) as picture:
        picture.load()
        assert picture.format == "JPEG"
        assert max(picture.size) <= 640
        assert not picture.getexif()


def test_truth_names_every_query_and_only_what_is_there():
    known = {path.relative_to(DEMO).as_posix() for path in [*PICTURES, *QUERIES]}
    assert {name for row in truth() for name in row} <= known
    assert {query for query, _ in truth()} == {f"queries/{path.name}" for path in QUERIES}
    assert len(set(truth())) == len(truth())
    assert all(path.startswith("pictures/") for _, path in truth())


def test_every_photograph_is_credited():
    """What the generator reads from its sources stands in the credits, by name."""
    credits = (DEMO / "CREDITS.md").read_text(encoding="utf-8")
    code = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "tools").glob("*demo_*.py")))
    names = {word.strip("\"'") for word in code.replace("(", " ").replace(")", " ").replace(",", " ").split()}
    sources = {name for name in names if name.endswith((".jpg", ".png")) and "/" not in name and "{" not in name}
    made = {path.name for path in [*PICTURES, *QUERIES]} - {"flower.jpg"}
    sources -= made
    assert len(sources) > 15
    for name in sources:
        start, _, end = name.partition("*")
        assert start in credits, name
        assert end in credits, name
