from __future__ import annotations

import pytest

from elvis.visualise import Positive, ranking_strip
from pair_examples import assert_texts_are_readable, picture

GAINS = [(3, 0), (40, 2), (0, 0), (1, 9), (120, 7), (5, 5), (8, 1), (2, 0), (600, 12), (7, 30)]


def positives():
    shapes = [(640, 480), (480, 640), (1800, 300)]
    return [
        Positive(picture(shapes[k % 3], k) if k != 4 else None, before, after)
        for k, (before, after) in enumerate(GAINS)
    ]


def test_positives_by_gain_with_what_stood_ahead():
    figure = ranking_strip(picture((480, 640)), positives(), precision_before=0.123, precision_after=0.876, count=20)
    texts = [text.get_text() for text in figure.texts]
    assert texts[0] == "AP 12.3 → 87.6"
    ahead = [tuple(int(number) for number in text.split(" → ")) for text in texts[2:]]
    assert sorted(ahead) == sorted(GAINS)
    gains = [before - after for before, after in ahead]
    assert gains == sorted(gains, reverse=True)
    assert_texts_are_readable(figure)


def test_of_many_the_ends_are_shown():
    figure = ranking_strip(picture((64, 48)), positives(), precision_before=0.5, precision_after=0.4, count=4)
    assert [text.get_text() for text in figure.texts][2:] == ["600 → 12", "120 → 7", "1 → 9", "7 → 30"]


@pytest.mark.parametrize("count", [0, 1])
def test_few_positives(count):
    figure = ranking_strip(picture((64, 48)), positives()[:count], precision_before=0.5, precision_after=0.5)
    assert_texts_are_readable(figure)


def test_count_is_checked():
    with pytest.raises(ValueError, match="count: expected at least 1, got 0"):
        ranking_strip(picture((64, 48)), [], precision_before=0, precision_after=0, count=0)
