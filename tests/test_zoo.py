"""A zoo of pictures through the whole product: each is indexed right or listed with its reason, and none is lost."""

import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from elvis import Index, Searcher
from elvis.building import Builder
from elvis.images import open_image
from elvis.indexing import add_pictures


def pattern(width: int = 160, height: int = 112, seed: int = 0) -> Image.Image:
    tiles = np.random.default_rng(seed).integers(0, 256, (7, 10, 3), dtype=np.uint8)
    return Image.fromarray(tiles).resize((width, height), Image.Resampling.NEAREST)


def bomb() -> bytes:
    """A PNG whose header promises 100 megapixels."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", 10_000, 10_000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def draw_zoo(folder: Path) -> tuple[set[str], dict[str, str]]:
    """Names of the pictures that must be indexed, and those that must be skipped with a word of the reason."""
    pattern().save(folder / "plain.png")
    pattern().convert("CMYK").save(folder / "cmyk.jpg", quality=95)
    Image.fromarray(np.arange(160 * 112, dtype=np.uint16).reshape(112, 160)).save(folder / "sixteen-bit.png")
    palette = pattern().quantize(16)
    palette.save(folder / "palette.png", transparency=0)
    pattern().save(folder / "moving.gif", save_all=True, append_images=[pattern(seed=1), pattern(seed=2)])
    pattern().save(folder / "really-a-png.jpg", format="PNG")
    pattern().save(folder / "Straße 漢字.png")
    pattern().save(folder / "two\nlines.png")
    Image.new("RGB", (1, 1), "red").save(folder / "one-pixel.png")
    Image.new("RGB", (20_000, 3), "blue").save(folder / "thin.png")
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        pattern().save(folder / f"turned-{orientation}.png", exif=exif)
    indexed = {file.name for file in folder.iterdir()}
    whole = (folder / "plain.png").read_bytes()
    (folder / "cut.png").write_bytes(whole[: len(whole) // 2])
    (folder / "empty.jpg").write_bytes(b"")
    (folder / "words.jpg").write_text("no picture at all")
    (folder / "bomb.png").write_bytes(bomb())
    (folder / "loop").mkdir()
    (folder / "loop" / "again").symlink_to(folder, target_is_directory=True)
    (folder / "nowhere.png").symlink_to(folder / "gone.png")
    reasons = {"cut.png": "", "empty.jpg": "empty", "words.jpg": "", "bomb.png": "exceed the limit", "nowhere.png": ""}
    return indexed, reasons


@pytest.fixture(scope="module")
def builder(tiny_checkpoint: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Builder:
    settings = {"backbone": str(tiny_checkpoint("dinov2")), "longer_side": 112, "descriptors": 40}
    return Builder.of(tmp_path_factory.mktemp("zoo") / "zoo.index", settings=settings)


def test_every_animal_is_indexed_or_named(builder: Builder, tmp_path: Path) -> None:
    indexed, reasons = draw_zoo(tmp_path)
    with builder.open() as index:
        report = add_pictures(index, [tmp_path], builder.extractor, builder.model)
    with Index.open(builder.folder) as index:
        assert {os.path.relpath(path, tmp_path) for path in index.paths()} == indexed
        assert index.verify().sound
        searcher = Searcher(index, extractor=builder.extractor)
        for name in sorted(indexed):
            best = searcher.search(tmp_path / name, top=1)[0]
            assert best.global_similarity > 0.99
        upright = {open_image(tmp_path / f"turned-{orientation}.png").size for orientation in (5, 6, 7, 8)}
        assert upright == {(112, 160)}
        sizes = index.descriptors([str(tmp_path / "turned-6.png")]).size
        assert sizes.tolist() == [[112, 160]]
    skipped = {each.path.name: each.reason for each in report.skipped}
    for name, word in reasons.items():
        assert word in skipped[name]
        assert "\n" not in skipped[name]
    assert report.added == len(indexed)
