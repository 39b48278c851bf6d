import math

import pytest
import torch

from elvis import Descriptors


def full(pictures: int = 2, count: int = 3, dim: int = 4) -> Descriptors:
    return Descriptors(
        torch.randn(pictures, count, dim),
        torch.arange(count) < torch.tensor([[count], [count - 1]])[:pictures],
        xy=torch.rand(pictures, count, 2),
        strength=torch.rand(pictures, count),
        size=torch.tensor([[4033, 3025]] * pictures),
        image_vector=torch.randn(pictures, 5),
        gain=torch.rand(pictures, count),
    )


def test_missing_mask_means_all_real() -> None:
    assert Descriptors(torch.ones(2, 3, 4)).mask.tolist() == [[True] * 3] * 2


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"vectors": torch.ones(3, 4)}, ValueError, r"vectors: expected shape \(B, N, D\), got \(3, 4\)"),
        ({"vectors": [[1.0]]}, TypeError, "vectors: expected a torch.Tensor, got list"),
        (
            {"vectors": torch.ones(1, 3, 4, dtype=torch.int64)},
            TypeError,
            "floating-point dtype, or int8, got torch.int64",
        ),
        ({"vectors": torch.ones(2, 0, 4)}, ValueError, "at least one picture, descriptor and channel"),
        ({"vectors": torch.ones(0, 3, 4)}, ValueError, "at least one picture, descriptor and channel"),
        ({"mask": torch.ones(2, 3)}, TypeError, "mask: expected dtype torch.bool, got torch.float32"),
        ({"mask": torch.ones(2, 4, dtype=torch.bool)}, ValueError, r"mask: expected shape .*\(2, 3\), got \(2, 4\)"),
        ({"mask": torch.tensor([[True] * 3, [False] * 3])}, ValueError, r"none in pictures \[1\]"),
        ({"xy": torch.ones(2, 3)}, ValueError, r"xy: expected shape .*\(2, 3, 2\), got \(2, 3\)"),
        ({"xy": torch.ones(2, 3, 2, dtype=torch.int64)}, TypeError, "xy: expected a floating-point dtype"),
        ({"strength": torch.ones(1, 3)}, ValueError, "strength: expected shape"),
        ({"gain": torch.full((2, 3), math.nan)}, ValueError, "gain: expected finite numbers"),
        ({"size": torch.ones(2)}, ValueError, "size: expected shape"),
        ({"image_vector": torch.ones(3, 7)}, ValueError, "image_vector: expected shape"),
        ({"image_vector": torch.full((2, 7), math.inf)}, ValueError, "image_vector: expected finite numbers"),
        ({"vectors": torch.full((2, 3, 4), math.nan)}, ValueError, r"vectors: expected finite .* pictures \[0, 1\]"),
    ],
)
def test_bad_input_is_named(arguments: dict, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Descriptors(**{"vectors": torch.ones(2, 3, 4), **arguments})


def test_a_sum_that_overflows_is_not_taken_for_infinity() -> None:
    assert Descriptors(torch.full((1, 4, 4), 3e38)).vectors.max() == 3e38


def test_nan_at_padding_is_cleared() -> None:
    vectors = torch.ones(1, 3, 2)
    vectors[0, 2] = math.nan
    assert Descriptors(vectors, torch.tensor([[True, True, False]])).vectors.isfinite().all()


def test_select_keeps_every_field_and_the_order() -> None:
    both = full()
    picked = both.select([1, 0, 1])
    assert len(picked) == 3
    for name in ("vectors", "mask", "xy", "strength", "size", "image_vector", "gain"):
        assert torch.equal(getattr(picked, name)[0], getattr(both, name)[1])
        assert torch.equal(getattr(picked, name)[1], getattr(both, name)[0])
    assert torch.equal(both.select(-1).vectors, both.vectors[1:])
    with pytest.raises(ValueError, match="one of 2 pictures, got 5"):
        both.select(5)


def test_stack_pads_and_marks_the_padding() -> None:
    short, long = full(1, 2), full(1, 5)
    stacked = Descriptors.stack([short, long])
    assert stacked.counts.tolist() == [2, 5]
    assert torch.equal(stacked.vectors[0, :2], short.vectors[0])
    assert stacked.vectors[0, 2:].abs().sum() == 0
    assert torch.equal(stacked.xy[1], long.xy[0])


def test_stack_refuses_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="expected D = 4 everywhere, got 5"):
        Descriptors.stack([Descriptors(torch.ones(1, 2, 4)), Descriptors(torch.ones(1, 2, 5))])
    with pytest.raises(ValueError, match="same fields"):
        Descriptors.stack([full(), Descriptors(torch.ones(1, 2, 4))])
    with pytest.raises(ValueError, match="at least one"):
        Descriptors.stack([])


def test_to_changes_floats_and_leaves_masks_and_sizes() -> None:
    half = full().to(torch.float16)
    assert half.vectors.dtype == half.gain.dtype == half.image_vector.dtype == torch.float16
    assert half.mask.dtype == torch.bool
    assert half.size.tolist() == [[4033, 3025]] * 2
    assert full().to("cpu", torch.float64).vectors.dtype == torch.float64


def test_strongest_cuts_descriptors_and_not_pictures() -> None:
    cut = full().strongest(2)
    assert cut.vectors.shape == (2, 2, 4)
    assert cut.xy.shape == (2, 2, 2)
    assert cut.image_vector.shape == (2, 5)


def test_int8_vectors_stay_what_they_are() -> None:
    small = Descriptors(torch.ones(2, 3, 4, dtype=torch.int8), gain=torch.ones(2, 3))
    assert small.to(torch.float16).vectors.dtype == torch.int8
    assert small.to(torch.float16).gain is not None
    assert Descriptors.stack([small, small]).vectors.dtype == torch.int8
    with pytest.raises(TypeError, match="stack: expected int8 vectors everywhere or nowhere, got both"):
        Descriptors.stack([small, Descriptors(torch.ones(1, 3, 4), gain=torch.ones(1, 3))])
