"""Makes the stores of all schemas that tests keep for good: python tests/compat/make_store.py FOLDER."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from elvis.indexing import add_pictures, card_for
from elvis.store import Index
from elvis.store.card import SCHEMAS
from store_examples import TwoColour, draw_pictures, matcher

PICTURES = 6


def make(folder: Path, store: str) -> None:
    """Six drawn pictures in two commits, with raw descriptors, metadata, and one picture removed again."""
    from elvis.store.metadata import read_metadata

    with tempfile.TemporaryDirectory() as scratch:
        paths = draw_pictures(Path(scratch, "pictures"), PICTURES)
        table = Path(scratch, "facts.csv")
        table.write_text("path,museum,year\n" + "".join(f"{path},M{path.stem},{int(path.stem)}\n" for path in paths))
        with Index.create(folder, card_for(TwoColour(), matcher(), keep_raw=True, store=store)) as index:
            facts = read_metadata(table)
            add_pictures(index, paths, TwoColour(), matcher(), metadata=facts, commit_every=3)
            index.remove([str(paths[2])])
    (folder / "writer.lock").unlink()


if __name__ == "__main__":
    for kind, number in SCHEMAS.items():
        make(Path(sys.argv[1]) / f"schema-{number}", kind)
