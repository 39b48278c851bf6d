"""Scores under way: every state that a kill can leave is taken up, everything else is refused."""

import json

import numpy as np
import pytest

from elvis.errors import CacheError
from elvis.evaluation.scores import KeptScores

CANDIDATES = np.array([7, 4, 9])
SCORES = np.array([0.1, 1 / 3, 2e-7])


def fill(file, queries=3):
    with KeptScores(file, {"depth": 3}) as kept:
        for query in range(queries):
            kept.add(query, CANDIDATES, SCORES + query)
    return file


def test_scores_come_back_bit_for_bit(tmp_path):
    with KeptScores(fill(tmp_path / "scores"), {"depth": 3}) as kept:
        for query in range(3):
            assert np.array_equal(kept.get(query, CANDIDATES), SCORES + query)
        assert kept.get(3, CANDIDATES) is None
        assert kept.get(0, CANDIDATES[::-1]) is None  # other candidates, or another order


def test_a_file_cut_off_anywhere_keeps_its_whole_lines_and_can_be_added_to(tmp_path):
    whole = fill(tmp_path / "whole").read_bytes()
    file = tmp_path / "cut"
    for length in range(len(whole) + 1):
        file.write_bytes(whole[:length])
        lines = max(whole[:length].count(b"\n") - 1, 0)
        with KeptScores(file, {"depth": 3}) as kept:
            assert [kept.get(query, CANDIDATES) is not None for query in range(3)] == [
                query < lines for query in range(3)
            ]
            for query in range(lines, 3):
                kept.add(query, CANDIDATES, SCORES + query)
        assert file.read_bytes() == whole


def test_another_runs_file_is_refused(tmp_path):
    with pytest.raises(CacheError, match="belongs to another run"):
        KeptScores(fill(tmp_path / "scores"), {"depth": 4})


@pytest.mark.parametrize("line", ["", "{", "[]", '{"query": 0}', '{"query": 0, "of": "x", "scores": ["a"]}', "nul\0"])
def test_a_damaged_line_is_named(tmp_path, line):
    file = fill(tmp_path / "scores")
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:2], line, *lines[3:]]) + "\n")
    with pytest.raises(CacheError, match="line 3 is damaged"):
        KeptScores(file, {"depth": 3})


def test_other_settings_have_a_file_of_their_own(tmp_path):
    for depth in (3, 4):
        KeptScores.of(tmp_path, {"depth": depth}).__exit__(None, None, None)
    assert sorted(json.loads(file.read_text())["depth"] for file in tmp_path.iterdir()) == [3, 4]


def test_a_place_that_cannot_be_written_is_one_line(tmp_path):
    with pytest.raises(CacheError, match="cannot be used"):
        KeptScores(tmp_path, {})
