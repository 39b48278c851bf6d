"""What the demo scenes are made of: photographs from the sources, and the things drawn for them."""

from __future__ import annotations

from pathlib import Path

from demo_artwork import BOOKS, OATS, TEAS, book_cover, book_spine, oats_front, oats_side, poster, tea_label
from demo_scenes import Camera, carton, plain, sheet, tin
from demo_surfaces import framed, print_of, swirls, tiled, tinted, wood
from PIL import Image, ImageFilter, ImageOps

WARM, COLD, DIM = (1.08, 0.98, 0.84), (0.88, 0.97, 1.1), (0.62, 0.56, 0.5)


class Things:
    """Photographs from the sources and the things drawn for the demo, each made once."""

    def __init__(self, sources: Path):
        self.sources = sources
        self.teas = {kind: tin(tea_label(kind), 0.75, 1.9) for kind in TEAS}
        self.oats = {kind: carton(oats_front(kind), oats_side(kind), 1.6, 2.25, 0.6) for kind in OATS}
        self.books = {kind: self._book(kind) for kind in BOOKS}
        self.posters = {kind: poster(kind) for kind in ("jazz", "opera", "blues")}
        self.starry = framed(self.photo("starry_night.jpg").crop((8, 8, 744, 592)))
        self.swirls = framed(swirls(5))
        self.cookies = self.photo("box.png")
        self.table = wood(1)
        self.dark_table = wood(2, (104, 66, 44))
        self.pale_table = wood(3, (196, 170, 134))
        self.brick = tiled(tinted(self.photo("brick.png").rotate(90), (170, 92, 70)), 5, 2)
        self.gravel = tiled(tinted(self.photo("gravel.png"), (150, 146, 138)), 6, 3)
        self.lawn = tiled(tinted(self.photo("grass.png"), (96, 128, 66)), 6, 3)
        self.plaster = tiled(self.photo("Picture_0B*.jpg").crop((0, 0, 860, 340)), 4, 4)
        self.planks = tiled(self.photo("friends*.jpg").crop((1300, 300, 2056, 1340)), 4, 1)
        self.room = self.photo("Wine*.jpg").crop((300, 0, 2560, 1700)).filter(ImageFilter.GaussianBlur(9))
        self.forest = self.photo("life*.jpg").crop((0, 300, 3088, 2056)).filter(ImageFilter.GaussianBlur(7))
        self.hills = self.photo("aitzgorri*.jpg").crop((0, 0, 3088, 1500))

    def photo(self, name: str) -> Image.Image:
        found = sorted(self.sources.rglob(name))
        if not found:
            raise SystemExit(f"{name} is not below {self.sources}: see demo/CREDITS.md for where it comes from")
        return ImageOps.exif_transpose(Image.open(found[0])).convert("RGB")

    def print(self, name: str, width: float):
        picture = self.photo(name)
        picture.thumbnail((700, 700))
        return sheet(print_of(picture), width)

    @staticmethod
    def _book(kind: str):
        return carton(book_cover(kind), book_spine(kind), 1.4, 2.08, 0.28, top=(240, 232, 214))


def kraft(width, height, depth, tone=(172, 132, 90)):
    """A box without print: clutter."""
    return carton(plain(tone), plain(tuple(int(c * 0.9) for c in tone)), width, height, depth, top=tone)


def jar(colour, radius=0.5, height=1.2):
    return tin(plain(colour), radius, height, lid=(220, 220, 216))


def front(size=(640, 480), height=1.6, distance=7.5, x=0.0, look=1.0, view=42.0, turn=0.0):
    """A camera at table height."""
    return Camera((x, height, -distance), (x * 0.4, look, 0), size, view, turn)


def above(size=(640, 480), height=8.0, x=0.0, z=-2.4, view=42.0, turn=0.0):
    """A camera looking down at a table."""
    return Camera((x, height, z), (x, 0, 0), size, view, turn)
