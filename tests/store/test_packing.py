from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elvis import Descriptors
from elvis.store.packing import BadBytes, batch, pack, unpack
from store_examples import matcher, record

SIZE, VECTOR = torch.tensor([[640, 480]]), torch.ones(1, 4)


def there_and_back(picture: Descriptors, dtype: str = "float16") -> Descriptors:
    return batch([unpack(pack(picture, b"key", dtype), b"key")], SIZE, VECTOR, torch.float32)


@given(st.integers(1, 30), st.integers(1, 20), st.integers(0, 2**31), st.booleans(), st.booleans(), st.booleans())
def test_every_field_comes_back_as_precisely_as_promised(
    count: int, dim: int, seed: int, xy: bool, strength: bool, gain: bool
):
    generator = torch.Generator().manual_seed(seed)
    picture = Descriptors(
        torch.randn(1, count, dim, generator=generator),
        xy=torch.rand(1, count, 2, generator=generator) if xy else None,
        strength=torch.rand(1, count, generator=generator) if strength else None,
        gain=torch.randn(1, count, generator=generator) if gain else None,
    )
    back = there_and_back(picture)
    assert torch.equal(back.vectors, picture.vectors.half().float())
    assert (back.xy is None, back.strength is None, back.gain is None) == (not xy, not strength, not gain)
    if xy:
        assert (back.xy - picture.xy).abs().max() <= 0.5 / 65535 + 1e-7
    if strength:
        assert torch.equal(back.strength, picture.strength.half().float())
    if gain:
        assert torch.equal(back.gain, picture.gain.half().float())


def test_padding_is_not_stored():
    vectors = torch.tensor([[[1.0], [2.0], [3.0]]])
    back = there_and_back(Descriptors(vectors, torch.tensor([[True, False, True]])))
    assert back.vectors.tolist() == [[[1.0], [3.0]]]


def test_a_batch_keeps_the_order_and_pads():
    parts = [unpack(pack(record(number).prepared, b""), b"") for number in (4, 1, 4)]
    both = batch(parts, torch.zeros(3, 2), torch.zeros(3, 6), torch.float16)
    assert both.counts.tolist() == [7, 4, 7]
    assert torch.equal(both.vectors[0], both.vectors[2])
    assert torch.equal(both.vectors[1, :4], record(1).prepared.vectors[0].half())


def test_every_flipped_bit_and_every_cut_is_noticed():
    packed = pack(record(1, count=2).prepared, b"key")
    for place in range(len(packed) * 8):
        flipped = bytearray(packed)
        flipped[place // 8] ^= 1 << place % 8
        with pytest.raises(BadBytes):
            unpack(bytes(flipped), b"key")
    for length in range(len(packed)):
        with pytest.raises(BadBytes):
            unpack(packed[:length], b"key")
    with pytest.raises(BadBytes, match="checksum"):
        unpack(packed, b"another key")


def test_what_half_precision_cannot_hold_is_refused():
    with pytest.raises(ValueError, match=r"vectors: expected numbers within ±65504, got 1e\+05"):
        pack(Descriptors(torch.full((1, 1, 1), 1e5)), b"")
    with pytest.raises(ValueError, match=r"xy: expected fractions in \[0, 1\]"):
        pack(Descriptors(torch.ones(1, 1, 1), xy=torch.full((1, 1, 2), 1.5)), b"")
    with pytest.raises(ValueError, match="one picture, got 2"):
        pack(Descriptors(torch.ones(2, 1, 1)), b"")


@given(st.integers(1, 30), st.integers(1, 400), st.integers(0, 2**31))
def test_int8_keeps_directions_in_half_the_space(count: int, dim: int, seed: int):
    generator = torch.Generator().manual_seed(seed)
    unit = torch.nn.functional.normalize(torch.randn(1, count, dim, generator=generator), dim=2)
    unit[0, 0] = 0
    picture = Descriptors(unit, gain=torch.rand(1, count, generator=generator))
    packed = pack(picture, b"key", "int8")
    assert len(packed) == len(pack(picture, b"key")) - count * dim
    stored = batch([unpack(packed, b"key")], SIZE, VECTOR)
    assert stored.vectors.dtype == torch.int8
    assert (stored.vectors[0, 1:].abs().amax(dim=1) == 127).all()
    back = there_and_back(picture, "int8")
    assert back.vectors.dtype == torch.float32
    # Half a step of a 127th of the largest entry, which is at most 1.
    assert (back.vectors - unit).abs().max() <= 0.5 / 127 * (1 + dim**0.5 / 127)
    assert (back.vectors[0, 0] == 0).all()
    assert torch.equal(back.gain, picture.gain.half().float())


def test_int8_refuses_what_has_a_length():
    with pytest.raises(ValueError, match="vectors: expected unit vectors.*got a length of 1.732"):
        pack(Descriptors(torch.ones(1, 5, 3)), b"", "int8")


def test_every_flipped_bit_of_int8_is_noticed():
    packed = pack(matcher().prepare(record(1, count=2).prepared), b"key", "int8")
    for place in range(len(packed) * 8):
        flipped = bytearray(packed)
        flipped[place // 8] ^= 1 << place % 8
        with pytest.raises(BadBytes):
            unpack(bytes(flipped), b"key")
