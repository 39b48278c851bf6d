"""How a path becomes a table key and comes back unharmed.

A table holds UTF-8 text only, but a file name may be any bytes without NUL. Python shows bytes that are no UTF-8 as
lone surrogates; each of those is stored as NUL and four hexadecimal digits. NUL stands in no file name, so the two
directions are exact. Line breaks, spaces and every other character are kept as they are.
"""

from __future__ import annotations

import re

_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPE = re.compile("\0([0-9a-f]{4})")


def path_to_text(path: str) -> str:
    r"""The table key of a path.

    Example:
        >>> path_to_text("Caf\udce9.jpg")
        'Caf\x00dce9.jpg'
        >>> path_to_text("two\nlines é.jpg")
        'two\nlines é.jpg'
    """
    if "\0" in path:
        raise ValueError(f"path: expected no NUL character, got {path!r}")
    return _SURROGATE.sub(lambda found: f"\0{ord(found[0]):04x}", path)


def text_to_path(text: str) -> str:
    r"""The path of a table key: undoes `path_to_text`.

    Example:
        >>> text_to_path("Caf\x00dce9.jpg") == "Caf\udce9.jpg"
        True
    """
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)
