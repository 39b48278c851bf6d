from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elvis.store.names import path_to_text, text_to_path


@given(st.binary().filter(lambda name: b"\0" not in name))
def test_any_bytes_survive(name: bytes):
    path = os.fsdecode(name)
    text = path_to_text(path)
    text.encode()  # what a table can hold
    assert os.fsencode(text_to_path(text)) == name


def test_different_paths_have_different_keys():
    paths = ["a", "a\udce9", "a\\udce9", "adce9", "a\n", "é"]
    assert len({path_to_text(path) for path in paths}) == len(paths)


def test_no_file_has_a_name_with_nul():
    with pytest.raises(ValueError, match="NUL"):
        path_to_text("a\0b")
