"""Scenes with tea tins, cartons of oats and books: each yields a name, what it shows, and the scene."""

from __future__ import annotations

from demo_artwork import almanac_cover, coffee_label, flakes_front
from demo_scenes import Scene, carton, plain, tin
from demo_things import COLD, DIM, WARM, Things, above, front, jar, kraft


def tea_scenes(t: Things):
    tea = t.teas
    upright, wide = (480, 640), (640, 420)
    yield (
        "queries/tea.jpg",
        "harbour",
        Scene(front(upright, 1.5, 2.9, look=0.95), [tea["harbour"].placed(0, 0, 6)], t.gravel, t.plaster),
    )
    yield (
        "tea-shelf.jpg",
        "harbour",
        Scene(
            front(height=2.0, distance=5.4, x=0.8),
            [
                tea["harbour"].placed(0.7, 0, -18),
                t.oats["banana"].placed(-1.7, 1.2, 14),
                jar((190, 60, 50)).placed(-0.6, -0.2),
                kraft(1.3, 1.5, 1.0).placed(-0.2, 1.9, 20),
                t.books["atlas"].placed(2.4, 1.2, -12),
            ],
            t.table,
            t.brick,
            light=WARM,
        ),
    )
    yield (
        "tea-dim.jpg",
        "harbour",
        Scene(
            front(upright, 2.4, 5.0, turn=11),
            [
                tea["harbour"].placed(-0.3, 0, 22),
                jar((120, 120, 128), 0.6, 1.6).placed(1.2, 0.9),
                kraft(1.2, 2.4, 0.8, (120, 100, 84)).placed(-1.3, 1.8, 30),
            ],
            t.dark_table,
            t.planks,
            light=DIM,
            noise=9,
            blur=0.6,
        ),
    )
    yield (
        "tea-picnic.jpg",
        "harbour",
        Scene(
            front(wide, 2.4, 6.0, view=46),
            [
                tea["harbour"].placed(-1.1, 0.3, 10),
                t.books["ferries"].lying().placed(1.0, -0.8, 35),
                t.print("coffee.png", 1.6).placed(2.4, 0.6, -24),
                jar((230, 180, 60), 0.45, 1.0).placed(0.6, 1.4),
                kraft(1.6, 0.9, 1.2, (150, 110, 70)).placed(2.6, 2.4, 12),
            ],
            t.lawn,
            None,
            t.photo("aitzgorri*.jpg").crop((0, 0, 3088, 1500)),
            wall_at=7.0,
        ),
    )
    yield (
        "tea-lying.jpg",
        "harbour",
        Scene(
            above((640, 480), 5.6, z=-1.4, turn=18),
            [
                tea["harbour"].lying().placed(0.4, 0.4, 96),
                t.books["atlas"].lying().placed(-1.7, 0.5, -20),
                t.print("coins.png", 1.4).placed(-0.3, -1.3, 12),
            ],
            t.pale_table,
            None,
        ),
    )
    yield (
        "tea-summit.jpg",
        "",
        Scene(
            front(upright, 1.7, 4.6, look=0.95),
            [tea["summit"].placed(0, 0, -25)],
            t.dark_table,
            None,
            t.room,
            wall_at=3.0,
        ),
    )
    yield (
        "tea-garden.jpg",
        "",
        Scene(
            front(upright, 1.5, 4.9, look=0.95),
            [tea["garden"].placed(0.05, 0, 20)],
            t.lawn,
            None,
            t.forest,
            wall_at=4.0,
            light=WARM,
        ),
    )
    yield (
        "coffee-tin.jpg",
        "",
        Scene(front(upright, 1.5, 3.4, look=0.95), [tin(coffee_label(), 0.75, 1.9).placed(0, 0, 0)], t.table, t.planks),
    )


def oats_scenes(t: Things):
    oats = t.oats
    upright = (480, 640)
    yield (
        "queries/oats.jpg",
        "blueberry",
        Scene(front(upright, 1.6, 3.5, look=1.1), [oats["blueberry"].placed(0, 0, 12)], t.gravel, t.planks),
    )
    yield (
        "oats-breakfast.jpg",
        "blueberry",
        Scene(
            front(height=2.3, distance=5.8, x=-0.5),
            [
                oats["blueberry"].placed(-0.8, 0.5, 24),
                jar((250, 250, 246), 0.5, 0.9).placed(0.5, -0.6),
                jar((220, 120, 40), 0.45, 1.3).placed(1.0, 0.9),
                t.teas["garden"].placed(2.2, 1.4, 40),
            ],
            t.table,
            t.brick,
            light=WARM,
        ),
    )
    yield (
        "oats-cupboard.jpg",
        "blueberry",
        Scene(
            front((640, 420), 1.4, 5.0, x=0.5, view=48),
            [
                oats["banana"].placed(-1.6, 0.9, -4),
                oats["blueberry"].placed(0.4, 0.4, 4),
                t.teas["summit"].placed(2.1, 0.6, 18),
                jar((160, 60, 60), 0.4, 0.8).placed(-0.7, -0.6),
            ],
            t.dark_table,
            t.plaster,
            light=DIM,
            contrast=1.2,
            noise=6,
        ),
    )
    yield (
        "oats-fallen.jpg",
        "blueberry",
        Scene(
            above((640, 480), 5.8, z=-1.6, turn=-25),
            [
                oats["blueberry"].lying().placed(0.5, 0.3, 118),
                t.teas["summit"].lying().placed(-1.7, -0.9, 30),
                kraft(1.4, 0.5, 1.0).placed(-1.2, 1.6, 15),
            ],
            t.gravel,
            None,
            light=COLD,
        ),
    )
    yield (
        "oats-strawberry.jpg",
        "",
        Scene(
            front(upright, 1.9, 5.4, look=1.1),
            [oats["strawberry"].placed(0, 0, -22)],
            t.lawn,
            None,
            t.hills,
            wall_at=6.0,
        ),
    )
    yield (
        "oats-banana.jpg",
        "",
        Scene(
            front(upright, 2.0, 5.4, look=1.0),
            [oats["banana"].placed(0, 0, -16)],
            t.dark_table,
            None,
            t.forest,
            wall_at=3.0,
            light=WARM,
        ),
    )
    flakes = carton(flakes_front(), plain((60, 70, 140)), 1.6, 2.25, 0.6)
    yield (
        "flakes.jpg",
        "",
        Scene(front(upright, 1.6, 4.2, look=1.1), [flakes.placed(0, 0, 10)], t.table, None, t.room, wall_at=3.0),
    )


def book_scenes(t: Things):
    books = t.books
    upright = (480, 640)
    yield (
        "queries/book.jpg",
        "clockmaker",
        Scene(above(upright, 2.8, z=-0.4), [books["clockmaker"].lying().placed(0, 0, 4)], t.gravel, None),
    )
    yield (
        "book-desk.jpg",
        "clockmaker",
        Scene(
            above((640, 480), 5.6, z=-2.0, turn=-8),
            [
                books["clockmaker"].lying().placed(-0.5, 0.2, 52),
                t.print("rocket.jpg", 1.7).placed(1.4, 0.7, -18),
                jar((70, 90, 130), 0.5, 0.8).placed(0.9, -1.0),
                t.teas["garden"].placed(-0.1, 1.9, 10),
            ],
            t.table,
            None,
            light=WARM,
        ),
    )
    yield (
        "book-window.jpg",
        "clockmaker",
        Scene(
            front(upright, 1.7, 4.6, look=1.1),
            [
                books["clockmaker"].placed(0.3, 0, -30),
                kraft(1.1, 1.3, 0.8).placed(-1.1, 0.9, 20),
                jar((150, 190, 120), 0.4, 1.0).placed(-0.9, -0.5),
            ],
            t.pale_table,
            None,
            t.photo("picosdeeuropa*.jpg").crop((700, 0, 2500, 2400)),
            wall_at=2.2,
            falloff=0.35,
        ),
    )
    yield (
        "book-covered.jpg",
        "clockmaker",
        Scene(
            above((640, 480), 4.2, z=-1.0, turn=32),
            [
                books["clockmaker"].lying().placed(0.2, 0.1, 200),
                t.print("retina.jpg", 0.9).placed(0.9, -0.6, 30, y=0.3),
                books["atlas"].lying().placed(-2.0, -0.6, 160),
            ],
            t.dark_table,
            None,
            light=DIM,
            noise=7,
        ),
    )
    yield (
        "book-ferries.jpg",
        "",
        Scene(above(upright, 4.4, z=-1.2), [books["ferries"].lying().placed(0, 0, -33)], t.table, None),
    )
    yield (
        "book-atlas.jpg",
        "",
        Scene(
            front(upright, 1.6, 4.6, look=1.0),
            [books["atlas"].placed(0, 0, 27)],
            t.pale_table,
            None,
            t.forest,
            wall_at=3.0,
            light=WARM,
        ),
    )
    almanac = carton(almanac_cover(), plain((36, 46, 62)), 1.4, 2.08, 0.28, top=(240, 232, 214))
    yield "almanac.jpg", "", Scene(above(upright, 3.4, z=-0.5), [almanac.lying().placed(0, 0, 4)], t.pale_table, None)
