"""What every drawing needs: figures without global state, two pictures laid out together, text that is always safe."""

from __future__ import annotations

import io
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from elvis.boxes import Box
from elvis.errors import ElvisError
from elvis.values import Descriptors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 110
GAP = 0.04
"""Between two pictures, as a share of the side they have in common."""
ROOM = (11.0, 7.0)
"""For the pictures of a figure that shows one pair, in inches."""
LONGEST = 900
"""Pictures are shrunk to this longer side before they are drawn: a figure shows no more."""
INK = "#222222"
FAINT = "#666666"
BLANK = "#e6e6e6"
UP, DOWN = "#0072b2", "#d55e00"
"""Okabe and Ito's blue and vermilion."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Where a picture lies on the drawing: left, top, width and height, with y downwards."""

    left: float
    top: float
    width: float
    height: float

    def point(self, xy: Sequence[float]) -> tuple[float, float]:
        """A position in the picture, as fractions, on the drawing."""
        return self.left + xy[0] * self.width, self.top + xy[1] * self.height


@dataclass(frozen=True, slots=True)
class Pair:
    """Two pictures laid out together, in a unit of their common side."""

    query: Frame
    gallery: Frame
    width: float
    height: float

    @property
    def beside(self) -> bool:
        """Side by side rather than one above the other."""
        return self.gallery.top == 0


def lay_out(query: tuple[float, float], gallery: tuple[float, float], *, beside: bool) -> Pair:
    """Two pictures of these sizes at equal height side by side, or at equal width one above the other.

    Example:
        >>> lay_out((200, 100), (100, 100), beside=True).gallery
        Frame(left=2.04, top=0, width=1.0, height=1)
    """
    first, second = query[0] / query[1], gallery[0] / gallery[1]
    if beside:
        width = first + GAP + second
        return Pair(Frame(0, 0, first, 1), Frame(first + GAP, 0, second, 1), width, 1)
    height = 1 / first + GAP + 1 / second
    return Pair(Frame(0, 0, 1, 1 / first), Frame(0, 1 / first + GAP, 1, 1 / second), 1, height)


def best_layout(query: tuple[float, float], gallery: tuple[float, float], room: tuple[float, float]) -> Pair:
    """The layout that shows the smaller of both pictures larger in a room of that width and height.

    Example:
        >>> best_layout((1000, 200), (900, 200), (4, 3)).beside, best_layout((3, 4), (3, 4), (4, 3)).beside
        (False, True)
    """
    pairs = [lay_out(query, gallery, beside=beside) for beside in (True, False)]
    return max(pairs, key=lambda pair: smaller_area(pair, room))


def smaller_area(pair: Pair, room: tuple[float, float]) -> float:
    """Area of the smaller picture when the pair fills the room."""
    scale = min(room[0] / pair.width, room[1] / pair.height)
    return scale**2 * min(frame.width * frame.height for frame in (pair.query, pair.gallery))


def upright_size(picture: Image.Image | None, descriptors: Descriptors, pair: int) -> tuple[float, float]:
    """Width and height of a picture, or of one that is gone, from what its descriptors remember."""
    if picture is not None:
        return float(picture.width), float(picture.height)
    if descriptors.size is None:
        return 1.0, 1.0
    width, height = descriptors.size[pair if len(descriptors) > 1 else 0].tolist()
    return float(width), float(height)


def positions(name: str, descriptors: Descriptors, pair: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """(N, 2) patch centres as fractions, padding included."""
    if descriptors.xy is None:
        raise ValueError(f"{name}: expected descriptors with xy (patch centres), got none")
    return descriptors.xy[pair if len(descriptors) > 1 else 0].detach().double().cpu().numpy()


def new_figure(width: float, height: float) -> Figure:
    """An empty white figure of that many inches, with its own canvas."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def place_axes(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Axes at inches from the top left corner, without ticks or frame."""
    whole_width, whole_height = figure.get_size_inches()
    axes = figure.add_axes(
        (left / whole_width, 1 - (top + height) / whole_height, width / whole_width, height / whole_height)
    )
    axes.set_axis_off()
    return axes


def one_panel(layout: Pair, title: str) -> tuple[Figure, Axes, tuple[float, float, float]]:
    """A figure for one pair under a title: itself, the axes, and left, top and height of its colour bar."""
    scale = min(ROOM[0] / layout.width, ROOM[1] / layout.height)
    width, height = max(layout.width * scale, 6.2), max(layout.height * scale, 0.9)
    figure = new_figure(width + 1.25, height + 0.65)
    axes = place_axes(figure, 0.2, 0.45, width, height)
    axes.set_anchor("NW")
    write(figure, 0.2, 0.14, title, size=11)
    return figure, axes, (0.2 + layout.width * scale + 0.12, 0.45, min(height, 2.4))


def write(figure: Figure, left: float, top: float, text: str, *, size: float = 10, **style: Any) -> None:
    """Text at inches from the top left corner of the figure; `left` and `top` are where its first line begins."""
    whole_width, whole_height = figure.get_size_inches()
    lines = "\n".join(safe_text(line) for line in text.split("\n"))
    style = {"color": INK, "ha": "left", "va": "top", **style}
    figure.text(
        left / whole_width, 1 - top / whole_height, lines, fontsize=size, family="DejaVu Sans",
        parse_math=False, **style,
    )  # fmt: skip


def inner_ticks(low: float, high: float, count: int) -> list[float]:
    """At most about `count` round numbers from low to high.

    Example:
        >>> inner_ticks(0.03, 0.97, 4)
        [0.25, 0.5, 0.75]
    """
    from matplotlib.ticker import MaxNLocator

    return [float(tick) for tick in MaxNLocator(count).tick_values(low, high) if low <= tick <= high]


def show_picture(axes: Axes, picture: Image.Image | None, frame: Frame, *, dimmed: bool = False) -> None:
    """The picture in its frame; a grey sheet that says so where it is gone."""
    extent = (frame.left, frame.left + frame.width, frame.top + frame.height, frame.top)
    if picture is None:
        axes.imshow([[0.0]], extent=extent, cmap="gray_r", vmin=-0.1, vmax=1, zorder=0)
        return
    small = picture.convert("L" if dimmed else "RGB")
    small.thumbnail((LONGEST, LONGEST), Image.Resampling.LANCZOS)
    if dimmed:
        axes.imshow(np.asarray(small), extent=extent, cmap="gray", vmin=-80, vmax=340, zorder=0)
    else:
        axes.imshow(np.asarray(small), extent=extent, zorder=0)


def fit_axes(axes: Axes, pair: Pair) -> None:
    """Limits that hold both pictures, y downwards, pixels square."""
    axes.set_xlim(0, pair.width)
    axes.set_ylim(pair.height, 0)
    axes.set_aspect("equal")


def draw_box(axes: Axes, frame: Frame, box: Box, *, width: float = 2.0) -> None:
    """The box of the match: white on black, which is seen on any picture."""
    from matplotlib.patches import Rectangle

    corner = frame.point(box[:2])
    size = box[2] * frame.width, box[3] * frame.height
    for colour, line in (("black", width + 2), ("white", width)):
        axes.add_patch(Rectangle(corner, *size, fill=False, edgecolor=colour, linewidth=line, zorder=5, clip_on=False))


def safe_text(text: str, longest: int | None = None) -> str:
    r"""Text that the drawing font can show: other letters become □, the middle of what is too long one mark.

    Example:
        >>> safe_text("a\nb 漢字.jpg"), safe_text("a-very-long-name.jpg", 12)
        ('a b □□.jpg', 'a-ver…me.jpg')
    """
    from matplotlib import font_manager

    known = font_manager.get_font(font_manager.findfont("DejaVu Sans")).get_charmap()
    text = unicodedata.normalize("NFC", text)
    text = "".join(" " if letter.isspace() else letter if ord(letter) in known else "□" for letter in text)
    if longest is None or len(text) <= longest:
        return text
    end = longest // 2
    return f"{text[: longest - end - 1]}…{text[-end:]}"


def to_png(figure: Figure) -> bytes:
    r"""The figure as a PNG file.

    Example:
        >>> to_png(new_figure(1, 1))[:4]
        b'\x89PNG'
    """
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI)
    return buffer.getvalue()


def save(figure: Figure, path: str | Path) -> None:
    """Write the figure as its suffix says: png, pdf, svg, jpg or webp; folders are made.

    Example:
        >>> save(new_figure(1, 1), "match.tiff8")
        Traceback (most recent call last):
        ...
        ValueError: path: expected a name that ends in .jpg, .pdf, .png, .svg or .webp, got 'match.tiff8'
    """
    path = Path(path)
    if path.suffix.lower() not in (".jpg", ".pdf", ".png", ".svg", ".webp"):
        raise ValueError(f"path: expected a name that ends in .jpg, .pdf, .png, .svg or .webp, got {path.name!r}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=DPI)
    except OSError as error:
        raise ElvisError(f"{path} cannot be written: {error.strerror or error}") from error
