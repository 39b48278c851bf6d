"""Groups of pictures as one HTML page with thumbnails inside it, written piece by piece."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape
from pathlib import Path

from PIL import Image

from elvis.errors import UnreadableImage
from elvis.image_files import shown
from elvis.images import open_image

SIDE = 180

HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Groups of the same thing</title>
<style>
:root { color-scheme: light dark; }
body { font: 15px/1.4 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem; }
section { border-top: 1px solid #8886; padding: .5rem 0 1rem; }
h2 { font-size: 1rem; margin: .4rem 0; }
ul { display: flex; flex-wrap: wrap; gap: .7rem; list-style: none; margin: 0; padding: 0; }
li { width: 180px; }
img, .gone { background: #8883; display: block; height: 180px; object-fit: contain; width: 180px; }
.gone { align-items: center; display: flex; font-size: .8rem; justify-content: center; }
p { font-size: .75rem; margin: .2rem 0 0; overflow-wrap: anywhere; }
</style></head><body>
"""


def write_group_page(groups: Sequence[Sequence[str]], out: Path) -> None:
    """Writes the page; a picture that is gone is named all the same.

    Args:
        groups: paths of the pictures of each group.
        out: the HTML file.
    """
    with out.open("w", encoding="utf-8") as page:
        page.write(HEAD)
        pictures = sum(map(len, groups))
        page.write(f"<h1>{len(groups)} groups, {pictures} pictures</h1>\n")
        for number, group in enumerate(groups, 1):
            page.write(f"<section><h2>Group {number}: {len(group)} pictures</h2><ul>\n")
            for path in group:
                page.write(f"<li>{_thumbnail(path)}<p>{escape(shown(path))}</p></li>\n")
            page.write("</ul></section>\n")
        page.write("</body></html>\n")


def _thumbnail(path: str) -> str:
    try:
        picture = open_image(path)
    except UnreadableImage as error:
        return f'<div class="gone" title="{escape(str(error))}">cannot be read any more</div>'
    picture.thumbnail((SIDE * 2, SIDE * 2), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=80)
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<img alt="{escape(shown(Path(path).name))}" src="data:image/jpeg;base64,{data}">'
