"""The training benchmark's own parts: every variant takes the same step."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch


@pytest.fixture(autouse=True)
def _in_float64() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.mark.parametrize("part", ["whole step", "transport"])
def test_variants_have_the_same_gradients(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[1])
    from benchmarks import published, training

    for name, size in (("TRIPLETS", 2), ("PLACES", 9), ("CHANNELS", 12), ("DIM", 8)):
        monkeypatch.setattr(training, name, size)
    plain = training.make_step(training._published(published.strengths), part)()
    ours = training.make_step(training._ours, part)()
    assert len(plain) == len(ours) > 4
    assert training._difference(ours, plain) < 1e-6
    assert all(bool(gradient.abs().sum() > 0) for gradient in plain if gradient.numel() > 1)
    assert training._difference([2 * ours[0], *ours[1:]], plain) == pytest.approx(1)
