"""Makes demo/pictures, demo/queries and demo/truth.csv again, picture by picture the same.

    python tools/make_demo_pictures.py SOURCES [--out demo]

SOURCES is a folder that holds, anywhere below it, the photographs named in demo/CREDITS.md: Debian's packages
`opencv-doc` and `lomiri-wallpapers-16.04` unpacked with `dpkg -x`, the wheels of scikit-image 0.26 and
scikit-learn unpacked with `unzip`. Everything else is drawn here.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

from demo_products import book_scenes, oats_scenes, tea_scenes
from demo_scenes import Scene
from demo_things import Things
from demo_walls import cookie_scenes, painting_scenes, poster_scenes
from PIL import Image

LONGER_SIDE, QUALITY = 640, 88
DISTRACTORS = {
    "fig": "Picture_0B*.jpg",
    "brushes": "Picture_1A*.jpg",
    "dandelion": "seeding*.jpg",
    "dogs": "friends*.jpg",
    "stream": "life*.jpg",
    "pass": "picos*.jpg",
    "evening": "sunset*.jpg",
    "drum": "Wine*.jpg",
    "cat": "chelsea.png",
    "flower": "flower.jpg",
    "launch": "rocket.jpg",
    "astronaut": "astronaut.png",
}


def shrunk(picture):
    picture = picture.copy()
    picture.thumbnail((LONGER_SIDE, LONGER_SIDE), Image.Resampling.LANCZOS)
    return picture


def photographs(t: Things):
    """Pictures without rendering: the cookie box, parts of photographs, and plain distractors."""
    yield "queries/cookies.jpg", "cookies", t.cookies
    yield "cookies-in-scene.jpg", "cookies", t.photo("box_in_scene.png")
    pavilion = t.photo("china.jpg")
    yield "pavilion.jpg", "", pavilion
    yield "coffee.jpg", "", t.photo("coffee.png")
    for name, source in DISTRACTORS.items():
        yield f"{name}.jpg", "", t.photo(source)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sources", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "demo")
    options = parser.parse_args()
    things = Things(options.sources)
    shown: dict[str, list[str]] = {}
    for family in (photographs, tea_scenes, oats_scenes, book_scenes, poster_scenes, painting_scenes, cookie_scenes):
        for name, label, what in family(things):
            picture = what.render(sum(name.encode())) if isinstance(what, Scene) else shrunk(what)
            place = options.out / (name if name.startswith("queries/") else f"pictures/{name}")
            place.parent.mkdir(parents=True, exist_ok=True)
            picture.save(place, quality=QUALITY, optimize=True)
            if label:
                shown.setdefault(label, []).append(name)
    with (options.out / "truth.csv").open("w", newline="") as stream:
        table = csv.writer(stream, lineterminator="\n")
        table.writerow(["query", "path"])
        for names in shown.values():
            query = next(name for name in names if name.startswith("queries/"))
            table.writerows([query, f"pictures/{name}"] for name in sorted(names) if name != query)


if __name__ == "__main__":
    main()
