"""Artwork of things that do not exist: labels, cartons, book covers and posters, drawn from nothing.

Things of one family share their layout, so that they look alike as a whole and differ in what is printed on them.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from demo_surfaces import paper, shaded
from PIL import Image, ImageDraw, ImageFont

INK = (38, 34, 40)
CREAM = (246, 238, 220)


def font(size, face="DejaVuSans-Bold"):
    """A typeface that comes with matplotlib, so that every machine draws the same letters."""
    import matplotlib

    return ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{face}.ttf", size)


def centred(draw, xy, text, size, fill, face="DejaVuSans-Bold"):
    draw.text(xy, text, fill=fill, font=font(size, face), anchor="mm")


# --- Tea tins: a label that goes once around, its picture in the middle -----------------------------------------


def lighthouse(draw, cx, cy, r):
    draw.ellipse((cx - r, cy - r, cx + r, cy + r), fill=(120, 180, 205))
    draw.polygon([(cx - 0.16 * r, cy - 0.45 * r), (cx + 0.16 * r, cy - 0.45 * r), (cx + 0.28 * r, cy + 0.5 * r),
                  (cx - 0.28 * r, cy + 0.5 * r)], fill=(250, 250, 245))  # fmt: skip
    for k in range(3):
        y = cy - 0.3 * r + 0.27 * k * r
        w = (0.18 + 0.035 * k) * r
        draw.polygon([(cx - w, y), (cx + w, y), (cx + w + 6, y + 0.12 * r), (cx - w - 6, y + 0.12 * r)],
                     fill=(200, 50, 45))  # fmt: skip
    draw.rectangle((cx - 0.14 * r, cy - 0.68 * r, cx + 0.14 * r, cy - 0.45 * r), fill=(255, 214, 90))
    draw.polygon([(cx - 0.2 * r, cy - 0.66 * r), (cx + 0.2 * r, cy - 0.66 * r), (cx, cy - 0.9 * r)], fill=INK)
    draw.chord((cx - r, cy - r, cx + r, cy + r), 28, 152, fill=(24, 60, 96))
    for k in range(4):
        y = cy + (0.55 + 0.1 * k) * r
        half = math.sqrt(max(0, r * r - (y - cy) ** 2)) * 0.85
        draw.arc((cx - half, y - 8, cx, y + 8), 0, 180, fill=(200, 225, 235), width=4)
        draw.arc((cx, y - 8, cx + half, y + 8), 180, 360, fill=(200, 225, 235), width=4)


def mountains(draw, cx, cy, r):
    draw.ellipse((cx - r, cy - r, cx + r, cy + r), fill=(240, 190, 130))
    draw.ellipse((cx + 0.2 * r, cy - 0.7 * r, cx + 0.6 * r, cy - 0.3 * r), fill=(250, 240, 200))
    for dx, top, wide, tone in ((-0.35, -0.45, 0.6, (90, 100, 140)), (0.3, -0.2, 0.6, (60, 70, 110))):
        x = cx + dx * r
        draw.polygon([(x - wide * r, cy + 0.5 * r), (x, cy + top * r), (x + wide * r, cy + 0.5 * r)], fill=tone)
        draw.polygon([(x - 0.13 * r, cy + (top + 0.17) * r), (x, cy + top * r), (x + 0.13 * r, cy + (top + 0.17) * r),
                      (x + 0.04 * r, cy + (top + 0.11) * r), (x - 0.03 * r, cy + (top + 0.2) * r)],
                     fill=(250, 250, 250))  # fmt: skip
    draw.chord((cx - r, cy - r, cx + r, cy + r), 25, 155, fill=(45, 80, 60))


def leaves(draw, cx, cy, r):
    draw.ellipse((cx - r, cy - r, cx + r, cy + r), fill=(225, 235, 190))
    draw.line((cx, cy + 0.8 * r, cx, cy - 0.6 * r), fill=(60, 90, 40), width=9)
    for k in range(4):
        y = cy + (0.5 - 0.32 * k) * r
        for side in (-1, 1):
            draw.polygon([(cx, y), (cx + side * 0.3 * r, y - 0.28 * r), (cx + side * 0.62 * r, y - 0.22 * r),
                          (cx + side * 0.4 * r, y)], fill=(70 + 15 * k, 130, 60))  # fmt: skip
    draw.ellipse((cx - 0.13 * r, cy - 0.82 * r, cx + 0.13 * r, cy - 0.54 * r), fill=(230, 120, 140))


TEAS = {
    "harbour": ("HARBOUR", "black tea, bergamot", (28, 74, 112), lighthouse),
    "summit": ("SUMMIT", "green tea, pine", (34, 92, 100), mountains),
    "garden": ("GARDEN", "white tea, rose", (60, 98, 66), leaves),
}


def tea_label(kind):
    title, line, colour, picture = TEAS[kind]
    sheet = paper((1800, 720), colour, 11)
    draw = ImageDraw.Draw(sheet)
    for y in (26, 44, 660, 678):
        draw.line((0, y, 1800, y), fill=(214, 178, 96), width=6)
    draw.rectangle((540, 70, 1260, 650), fill=CREAM, outline=(214, 178, 96), width=8)
    centred(draw, (900, 116), "NORDWIND TEA CO.", 38, colour, "DejaVuSerif-Bold")
    picture(draw, 900, 318, 158)
    centred(draw, (900, 536), title, 84, colour, "DejaVuSerif-Bold")
    centred(draw, (900, 606), line, 34, INK, "DejaVuSerif")
    for x in (60, 1320):
        for k in range(9):
            draw.rectangle((x, 130 + 48 * k, x + (380 if k % 3 else 240), 146 + 48 * k), fill=shaded(colour, 1.5))
    return sheet


def coffee_label():
    """A tin of another house: the same kind of thing, nothing of the same print."""
    sheet = paper((1800, 720), (40, 70, 100), 12)
    draw = ImageDraw.Draw(sheet)
    for k in range(30):
        draw.rectangle((60 * k, 0, 60 * k + 24, 720), fill=(226, 216, 196))
    draw.ellipse((640, 100, 1160, 620), fill=(120, 70, 40), outline=CREAM, width=14)
    for x, y, turn in ((800, 300, 30), (930, 250, -20), (1010, 370, 60), (860, 410, 10)):
        draw.ellipse((x - 50, y - 34, x + 50, y + 34), fill=(60, 34, 22))
        draw.arc((x - 40, y - 20, x + 40, y + 20), turn, turn + 150, fill=(150, 100, 60), width=6)
    draw.rectangle((520, 480, 1280, 590), fill=CREAM)
    centred(draw, (900, 535), "Kontor Coffee", 78, (60, 34, 22), "DejaVuSans-BoldOblique")
    return sheet


# --- Cartons of oats: bowl and fruit ----------------------------------------------------------------------------

OATS = {
    "blueberry": ("BLUEBERRY", (64, 72, 150), (242, 196, 60)),
    "strawberry": ("STRAWBERRY", (200, 44, 60), (242, 196, 60)),
    "banana": ("BANANA", (122, 78, 40), (242, 196, 60)),
}


def fruit(draw, kind, x, y, r, rng):
    if kind == "blueberry":
        draw.ellipse((x - r, y - r, x + r, y + r), fill=(52, 60, 132), outline=(34, 38, 90), width=4)
        draw.regular_polygon((x + 0.2 * r, y - 0.2 * r, 0.35 * r), 5, rotation=int(rng.integers(72)), fill=(30, 32, 70))
    elif kind == "strawberry":
        draw.polygon([(x - r, y - 0.6 * r), (x + r, y - 0.6 * r), (x, y + 1.3 * r)], fill=(212, 40, 56))
        draw.pieslice((x - r, y - 1.2 * r, x + r, y), 180, 360, fill=(60, 140, 60))
        for dx, dy in ((-0.4, -0.2), (0.3, -0.3), (0, 0.3), (0.1, 0.8)):
            draw.ellipse((x + dx * r - 4, y + dy * r - 6, x + dx * r + 4, y + dy * r + 6), fill=(250, 220, 120))
    else:
        start = int(rng.integers(360))
        draw.arc((x - 1.4 * r, y - 1.4 * r, x + 1.4 * r, y + 1.4 * r), start, start + 140, fill=(250, 216, 70),
                 width=int(0.7 * r))  # fmt: skip


def oats_front(kind):
    title, colour, accent = OATS[kind]
    sheet = paper((640, 900), (236, 226, 204), 21)
    draw = ImageDraw.Draw(sheet)
    draw.rectangle((0, 0, 640, 300), fill=colour)
    draw.pieslice((-200, 150, 840, 450), 0, 180, fill=colour)
    centred(draw, (320, 110), "Morning", 92, CREAM, "DejaVuSerif-BoldItalic")
    centred(draw, (320, 214), "OATS", 124, accent)
    draw.rounded_rectangle((120, 318, 520, 392), 34, fill=accent)
    centred(draw, (320, 355), title, 48, INK)
    rng = np.random.default_rng(3)
    for _ in range(16):
        fruit(draw, kind, rng.uniform(150, 490), rng.uniform(470, 610), rng.uniform(24, 40), rng)
    draw.chord((100, 430, 540, 810), 0, 180, fill=(250, 250, 250), outline=(120, 120, 130), width=6)
    draw.ellipse((100, 590, 540, 650), fill=(222, 190, 140), outline=(120, 120, 130), width=6)
    for _ in range(9):
        fruit(draw, kind, rng.uniform(170, 470), rng.uniform(590, 635), rng.uniform(22, 34), rng)
    centred(draw, (320, 866), "500 g  ·  whole grain", 30, INK, "DejaVuSans")
    return sheet


def flakes_front():
    """A carton of another house."""
    sheet = paper((640, 900), (70, 80, 160), 23)
    draw = ImageDraw.Draw(sheet)
    for k in range(24):
        angle = k * math.pi / 12
        draw.polygon([(320, 560), (320 + 700 * math.cos(angle), 560 + 700 * math.sin(angle)),
                      (320 + 700 * math.cos(angle + 0.13), 560 + 700 * math.sin(angle + 0.13))],
                     fill=(96, 108, 190))  # fmt: skip
    draw.ellipse((140, 380, 500, 740), fill=(240, 206, 120))
    rng = np.random.default_rng(4)
    for _ in range(60):
        x, y = rng.uniform(190, 450), rng.uniform(430, 690)
        draw.ellipse((x - 26, y - 15, x + 26, y + 15), fill=(214, 150, 60), outline=(150, 96, 36), width=4)
    draw.polygon([(40, 120), (600, 60), (600, 250), (40, 310)], fill=(250, 250, 250))
    centred(draw, (320, 185), "FLAKES", 120, (200, 60, 50), "DejaVuSans-BoldOblique")
    centred(draw, (320, 820), "crisp corn", 64, CREAM, "DejaVuSerif-Italic")
    return sheet


def oats_side(kind):
    title, colour, accent = OATS[kind]
    sheet = paper((240, 900), shaded(colour, 0.9), 22)
    draw = ImageDraw.Draw(sheet)
    centred(draw, (120, 90), title, 30, accent)
    draw.rectangle((24, 160, 216, 560), fill=CREAM)
    for k in range(11):
        draw.line((38, 190 + 34 * k, 120 + (k * 37) % 80, 190 + 34 * k), fill=INK, width=6)
    for k in range(26):  # bar code
        draw.rectangle((40 + 6 * k, 700, 40 + 6 * k + 1 + (k * 7) % 4, 810), fill=CREAM)
    return sheet


# --- Books of one series ----------------------------------------------------------------------------------------

BOOKS = {
    "clockmaker": (["The", "Clockmaker’s", "Garden"], "I. Verhoeven", 101),
    "ferries": (["Night", "Ferries"], "M. Okonjo", 202),
    "atlas": (["Atlas of", "Small Hours"], "R. Lindqvist", 303),
}


def gears(draw, rng, box):
    for _ in range(16):
        x, y = rng.uniform(box[0] + 40, box[2] - 40), rng.uniform(box[1] + 40, box[3] - 40)
        r, teeth = rng.uniform(40, 105), int(rng.integers(9, 16))
        tone = [(196, 140, 60), (150, 100, 50), (226, 190, 120), (90, 120, 70)][int(rng.integers(4))]
        points = [(x + r * (1 if k % 4 < 2 else 0.82) * math.cos(math.pi * k / teeth / 2),
                   y + r * (1 if k % 4 < 2 else 0.82) * math.sin(math.pi * k / teeth / 2))
                  for k in range(4 * teeth)]  # fmt: skip
        draw.polygon(points, fill=tone, outline=INK)
        draw.ellipse((x - 0.35 * r, y - 0.35 * r, x + 0.35 * r, y + 0.35 * r), fill=(30, 44, 58), outline=INK)


def boats(draw, rng, box):
    for k in range(10):
        y = box[1] + 40 + k * (box[3] - box[1] - 60) / 10
        for _ in range(3):
            x = rng.uniform(box[0] + 70, box[2] - 70)
            draw.chord((x - 60, y - 20, x + 60, y + 30), 0, 180, fill=(220, 90 + 12 * k, 60))
            draw.rectangle((x - 20, y - 22, x + 24, y + 4), fill=(240, 230, 200))
        draw.line((box[0] + 10, y + 24, box[2] - 10, y + 24), fill=(90, 130, 170), width=4)


def hours(draw, rng, box):
    for _ in range(26):
        x, y, r = rng.uniform(box[0] + 40, box[2] - 40), rng.uniform(box[1] + 40, box[3] - 40), rng.uniform(16, 60)
        draw.ellipse((x - r, y - r, x + r, y + r), outline=(230, 210, 140), width=5)
        angle = rng.uniform(0, 6.28)
        draw.line((x, y, x + r * math.cos(angle), y + r * math.sin(angle)), fill=(230, 120, 110), width=5)


def book_cover(kind):
    lines, author, seed = BOOKS[kind]
    sheet = paper((620, 920), (30, 44, 58), seed)
    draw = ImageDraw.Draw(sheet)
    box = (40, 330, 580, 820)
    art = Image.new("RGB", (box[2] - box[0], box[3] - box[1]), (44, 62, 80))
    picture = {"clockmaker": gears, "ferries": boats, "atlas": hours}[kind]
    picture(ImageDraw.Draw(art), np.random.default_rng(seed), (0, 0, *art.size))
    sheet.paste(art, box[:2])
    draw.rectangle((40, 40, 580, 300), fill=CREAM)
    for k, line in enumerate(lines):
        centred(draw, (310, 172 + (k - (len(lines) - 1) / 2) * 74), line, 62, INK, "DejaVuSerif-Bold")
    centred(draw, (310, 868), author, 40, CREAM, "DejaVuSerif")
    draw.rectangle((0, 0, 22, 920), fill=(180, 60, 50))
    return sheet


def almanac_cover():
    """A book of another house."""
    sheet = paper((620, 920), (36, 46, 62), 404)
    draw = ImageDraw.Draw(sheet)
    for k in range(12):
        tone = (210 - 9 * k, 150 - 4 * k, 80 + 6 * k)
        draw.ellipse((310 - 25 * (12 - k), 420 - 25 * (12 - k), 310 + 25 * (12 - k), 420 + 25 * (12 - k)), fill=tone)
    centred(draw, (310, 420), "1927", 110, CREAM, "DejaVuSerif-Bold")
    centred(draw, (310, 800), "Almanac", 96, CREAM, "DejaVuSerif-BoldItalic")
    draw.rectangle((30, 30, 590, 890), outline=(210, 170, 90), width=8)
    return sheet


def book_spine(kind):
    lines, _, seed = BOOKS[kind]
    sheet = paper((920, 110), (180, 60, 50), seed)
    centred(ImageDraw.Draw(sheet), (460, 55), " ".join(lines), 44, CREAM, "DejaVuSerif-Bold")
    return sheet.transpose(Image.Transpose.ROTATE_270)


# --- Posters ----------------------------------------------------------------------------------------------------


def poster(kind):
    ground, title, shapes = {
        "jazz": ((236, 196, 70), "JAZZ", 5),
        "opera": ((236, 190, 76), "OPERA", 9),
        "blues": ((226, 186, 90), "BLUES", 7),
    }[kind]
    sheet = paper((720, 1000), ground, shapes)
    draw = ImageDraw.Draw(sheet)
    rng = np.random.default_rng(shapes)
    if kind == "jazz":  # a trumpet of plain shapes
        draw.polygon([(110, 560), (470, 500), (640, 360), (640, 760), (470, 600)], fill=(190, 50, 44))
        for k in range(3):
            draw.rectangle((250 + 70 * k, 390, 282 + 70 * k, 560), fill=INK)
            draw.ellipse((244 + 70 * k, 366, 288 + 70 * k, 400), fill=CREAM)
        draw.arc((190, 520, 450, 740), 20, 200, fill=(190, 50, 44), width=36)
    elif kind == "blues":  # a sun over water
        draw.ellipse((180, 360, 540, 720), fill=(190, 50, 44))
        for k in range(7):
            draw.line((60, 560 + 36 * k, 660, 560 + 36 * k), fill=(40, 90, 110), width=14)
    else:  # a mask and curtains
        for k in range(6):
            draw.pieslice((-260 + 40 * k, 300, 260 - 30 * k, 980), 270, 90, fill=(190 - 20 * (k % 2), 50, 44))
        draw.ellipse((280, 380, 640, 740), fill=CREAM, outline=INK, width=10)
        draw.pieslice((340, 480, 430, 560), 180, 360, fill=INK)
        draw.pieslice((490, 480, 580, 560), 180, 360, fill=INK)
        draw.chord((380, 560, 540, 700), 0, 180, fill=(190, 50, 44))
    for _ in range(14):
        x, y, r = rng.uniform(40, 680), rng.uniform(330, 800), rng.uniform(8, 26)
        draw.regular_polygon((x, y, r), int(rng.integers(3, 7)), rotation=int(rng.integers(90)), fill=(40, 90, 110))
    centred(draw, (360, 150), title, 200 if kind == "jazz" else 170, INK)
    centred(draw, (360, 282), "NIGHTS AT THE MILL", 48, (190, 50, 44))
    draw.rectangle((0, 850, 720, 1000), fill=INK)
    centred(draw, (360, 900), "12 – 15 JUNE" if kind == "jazz" else "3 – 9 OCTOBER", 62, ground)
    centred(draw, (360, 964), "doors open at eight", 32, CREAM, "DejaVuSerif-Italic")
    return sheet
