"""Scenes with posters, paintings and the box of cookies: each yields a name, what it shows, and the scene."""

from __future__ import annotations

from demo_scenes import Camera, Scene, carton, hung, plain, sheet
from demo_surfaces import framed, print_of
from demo_things import COLD, DIM, WARM, Things, above, front, jar, kraft


def poster_scenes(t: Things):
    jazz, opera, blues = (t.posters[kind] for kind in ("jazz", "opera", "blues"))
    yield (
        "queries/poster.jpg",
        "jazz",
        Scene(
            Camera((0.4, 2.6, -6.4), (0.05, 2.5, 0), (480, 640), 26),
            [hung(jazz, 2.6).placed(0, -0.1, y=0.7)],
            t.gravel,
            t.plaster,
            wall_at=0.0,
        ),
    )
    yield (
        "poster-street.jpg",
        "jazz",
        Scene(
            Camera((-3.4, 2.2, -7.0), (-0.2, 2.4, 0), (640, 480), 44),
            [
                hung(jazz, 2.1).placed(1.0, -0.1, y=1.2),
                kraft(1.8, 1.6, 1.4, (90, 110, 90)).placed(-1.7, -1.2, 15),
                hung(print_of(t.photo("Picture_0B*.jpg")), 2.0).placed(-1.6, -0.1, y=2.4),
            ],
            t.gravel,
            t.brick,
            wall_at=0.0,
            light=COLD,
        ),
    )
    yield (
        "poster-night.jpg",
        "jazz",
        Scene(
            Camera((2.6, 1.8, -5.0), (0.2, 2.5, 0), (480, 640), 44, 7),
            [hung(jazz, 2.2).placed(0, -0.1, y=1.1), jar((60, 66, 70), 0.6, 1.6).placed(1.5, -1.0)],
            t.gravel,
            t.planks,
            wall_at=0.0,
            light=(0.45, 0.47, 0.6),
            noise=8,
            blur=0.5,
            falloff=0.3,
        ),
    )
    yield (
        "poster-column.jpg",
        "jazz",
        Scene(
            Camera((0.5, 2.6, -8), (0.2, 2.6, 0), (640, 400), 50),
            [
                hung(blues, 1.6).placed(-2.6, -0.1, y=1.5),
                hung(jazz, 1.8).placed(2.0, -0.1, y=1.4),
                hung(print_of(t.photo("china.jpg")), 2.2).placed(-0.4, -0.1, y=1.8),
            ],
            t.gravel,
            t.brick,
            wall_at=0.0,
            contrast=0.8,
        ),
    )
    yield (
        "poster-opera.jpg",
        "",
        Scene(
            Camera((-1.6, 2.6, -7.0), (0.0, 2.5, 0), (480, 640), 34),
            [hung(opera, 2.4).placed(0, -0.1, y=0.9)],
            t.gravel,
            t.planks,
            wall_at=0.0,
        ),
    )
    yield (
        "poster-blues.jpg",
        "",
        Scene(
            Camera((0.3, 2.6, -6.4), (0.1, 2.5, 0), (480, 640), 32),
            [hung(blues, 2.5).placed(0, -0.1, y=0.75)],
            t.lawn,
            t.brick,
            wall_at=0.0,
            light=WARM,
        ),
    )


def painting_scenes(t: Things):
    yield (
        "queries/painting.jpg",
        "starry",
        Scene(
            Camera((-1.6, 3.0, -7.0), (0, 3.0, 0), (640, 480), 35),
            [hung(t.starry, 4.4).placed(0, -0.1, y=1.3)],
            t.table,
            t.planks,
            wall_at=0.0,
        ),
    )
    yield (
        "painting-gallery.jpg",
        "starry",
        Scene(
            Camera((2.4, 2.6, -8.5), (0.2, 3.0, 0), (640, 427), 52),
            [
                hung(framed(t.photo("life_by*.jpg").resize((660, 440))), 2.8).placed(-3.2, -0.1, y=2.0),
                hung(t.starry, 2.8).placed(0.3, -0.1, y=2.0),
                hung(framed(t.photo("hubble*.jpg").resize((500, 436))), 2.0).placed(3.2, -0.1, y=2.2),
            ],
            t.dark_table,
            t.plaster,
            wall_at=0.0,
            light=WARM,
        ),
    )
    yield (
        "painting-dim.jpg",
        "starry",
        Scene(
            Camera((4.6, 2.0, -5.6), (0.4, 2.9, 0), (640, 480), 46, -9),
            [hung(t.starry, 3.6).placed(0, -0.1, y=1.5)],
            t.dark_table,
            t.brick,
            wall_at=0.0,
            light=DIM,
            noise=9,
            blur=0.6,
        ),
    )
    yield (
        "painting-postcard.jpg",
        "starry",
        Scene(
            above((480, 640), 4.6, z=-1.4, turn=80),
            [
                sheet(t.photo("starry_night.jpg").crop((8, 8, 744, 592)), 1.9).placed(0.4, 0.3, 15),
                t.print("astronaut.png", 1.4).placed(-1.0, -0.5, -30),
                t.teas["garden"].lying().placed(1.2, -1.2, 60),
            ],
            t.pale_table,
            None,
            light=WARM,
        ),
    )
    yield (
        "painting-imitation.jpg",
        "",
        Scene(
            Camera((1.2, 3.0, -7.6), (0, 3.0, 0), (640, 480), 40),
            [hung(t.swirls, 4.2).placed(0, -0.1, y=1.3)],
            t.table,
            t.plaster,
            wall_at=0.0,
        ),
    )


def cookie_scenes(t: Things):
    cookies, side = t.cookies.resize((648, 446)), plain((150, 150, 150))
    biscuits = carton(cookies, side, 2.6, 1.8, 0.5, top=(150, 150, 150))
    yield (
        "cookies-shop.jpg",
        "cookies",
        Scene(
            front((640, 480), 2.6, 8.0, turn=-6),
            [
                biscuits.placed(1.3, 0.4, -28),
                t.teas["summit"].placed(-1.4, -0.4, 20),
                t.oats["strawberry"].placed(-2.9, 1.4, 22),
                jar((210, 190, 120), 0.5, 1.1).placed(-0.1, 1.5),
            ],
            t.table,
            t.plaster,
        ),
    )
