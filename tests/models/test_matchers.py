"""What holds for every model that matches descriptor by descriptor."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elvis import Descriptors, load_model
from elvis.errors import UnknownName, WeightsError
from elvis.models import Chamfer, ChamferConfig, Matcher
from examples import MATCHERS, random_pictures, small_elvis

DIM = 12
EVERY_MATCHER = pytest.mark.parametrize("name", MATCHERS)
FEW = settings(max_examples=10, deadline=None)
COUNT = st.integers(1, 24)
SEED = st.integers(0, 1000)


def close(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-5, atol=2e-5)


def padded(descriptors: Descriptors, count: int, value: float) -> Descriptors:
    pictures, _, dim = descriptors.vectors.shape
    return Descriptors(
        torch.cat([descriptors.vectors, torch.full((pictures, count, dim), value)], dim=1),
        torch.cat([descriptors.mask, torch.zeros(pictures, count, dtype=torch.bool)], dim=1),
    )


@EVERY_MATCHER
@FEW
@given(m=COUNT, n=COUNT, more=st.integers(1, 20), value=st.sampled_from([0.0, 1.0, -1e4, 1e30]), seed=SEED)
def test_padding_never_changes_a_score(name: str, m: int, n: int, more: int, value: float, seed: int) -> None:
    matcher = MATCHERS[name]()
    query, gallery = random_pictures(2, m, DIM, seed=seed), random_pictures(2, n, DIM, seed=seed + 1)
    with torch.no_grad():
        close(matcher(padded(query, more, value), padded(gallery, more + 3, value)), matcher(query, gallery))


@EVERY_MATCHER
@FEW
@given(m=COUNT, n=COUNT, seed=SEED)
def test_order_of_descriptors_never_changes_a_score(name: str, m: int, n: int, seed: int) -> None:
    matcher = MATCHERS[name]()
    query, gallery = random_pictures(1, m, DIM, seed=seed), random_pictures(3, n, DIM, seed=seed + 1)
    generator = torch.Generator().manual_seed(seed)
    shuffled = Descriptors(gallery.vectors[:, torch.randperm(n, generator=generator)])
    with torch.no_grad():
        close(matcher(query, shuffled), matcher(query, gallery))


@EVERY_MATCHER
@FEW
@given(counts=st.lists(COUNT, min_size=1, max_size=5), m=COUNT, seed=SEED)
def test_one_by_one_equals_a_ragged_batch(name: str, counts: list[int], m: int, seed: int) -> None:
    matcher = MATCHERS[name]()
    query = random_pictures(1, m, DIM, seed=seed)
    pictures = [random_pictures(1, count, DIM, seed=seed + i) for i, count in enumerate(counts)]
    with torch.no_grad():
        alone = torch.cat([matcher(query, picture) for picture in pictures])
        together = matcher(query, Descriptors.stack(pictures))
        pairwise = matcher(query.select([0] * len(pictures)), Descriptors.stack(pictures))
    close(together, alone)
    close(pairwise, alone)


@EVERY_MATCHER
def test_gradients_or_not_the_score_is_the_same(name: str) -> None:
    matcher = MATCHERS[name]()
    query, gallery = random_pictures(1, 20, DIM, seed=0), random_pictures(4, 17, DIM, seed=1)
    with torch.no_grad():
        fast = matcher(query, gallery)
    query.vectors.requires_grad_()
    close(matcher(query, gallery).detach(), fast)


@FEW
@given(
    temperature=st.floats(0.01, 1),
    rounds=st.integers(1, 50),
    corner=st.floats(-50, 50),
    kind=st.sampled_from(["identical", "zero", "one", "ordinary", "huge", "tiny"]),
    standardise=st.booleans(),
)
def test_extreme_input_scores_finite_and_equal_in_both_forms(
    temperature: float, rounds: int, corner: float, kind: str, standardise: bool
) -> None:
    head = small_elvis(temperature=temperature, rounds=rounds, standardise=standardise)
    with torch.no_grad():
        head.corner.fill_(corner)
    vectors = {
        "identical": torch.ones(2, 9, DIM),
        "zero": torch.zeros(2, 9, DIM),
        "one": torch.randn(2, 1, DIM),
        "ordinary": torch.randn(2, 9, DIM),
        "huge": 1e15 * torch.randn(2, 9, DIM),
        "tiny": 1e-30 * torch.randn(2, 9, DIM),
    }[kind]
    pictures = Descriptors(vectors)
    differentiable = head(pictures, pictures)
    with torch.no_grad():
        plain = head(pictures, pictures)
        for other in (load_model("chamfer", standardise=standardise), load_model("chamfer-ot")):
            assert other(pictures, pictures).isfinite().all()
    assert plain.isfinite().all()
    torch.testing.assert_close(plain, differentiable.detach(), rtol=1e-4, atol=1e-4)


def test_chamfer_is_symmetric_and_its_negative_maxima_survive_padding() -> None:
    query, gallery = random_pictures(3, 8, DIM, seed=0), random_pictures(3, 5, DIM, seed=1)
    chamfer = Chamfer()
    close(chamfer(query, gallery), chamfer(gallery, query))
    one = Descriptors(torch.eye(2)[None, :1])
    opposed = Descriptors(torch.tensor([[[-1.0, 0.0], [0.0, 0.0]]]), torch.tensor([[True, False]]))
    assert chamfer(one, opposed).tolist() == [-2.0]


def test_chamfer_by_hand() -> None:
    query = Descriptors(torch.tensor([[[2.0, 0.0], [0.0, 5.0]]]))
    gallery = Descriptors(torch.tensor([[[3.0, 4.0]]]))
    assert Chamfer()(query, gallery).tolist() == pytest.approx([0.6 + 0.8 + 0.8])


def test_standardising_by_hand() -> None:
    vectors = torch.tensor([[[1.0, 5.0, 7.0], [3.0, 5.0, 1.0], [99.0, 99.0, 99.0]]])
    mask = torch.tensor([[True, True, False]])
    ready = Chamfer(ChamferConfig(standardise=True)).prepare(Descriptors(vectors, mask)).vectors[0]
    half = 0.5**0.5
    torch.testing.assert_close(ready, torch.tensor([[-half, 0, half], [half, 0, -half], [0, 0, 0]]))


def test_standardising_takes_away_what_a_camera_does_to_all_descriptors() -> None:
    picture = random_pictures(1, 40, DIM, seed=0)
    restyled = Descriptors(picture.vectors * torch.rand(DIM).add(0.5) + torch.randn(DIM))
    matcher = Chamfer(ChamferConfig(standardise=True))
    close(matcher.prepare(restyled).vectors, matcher.prepare(picture).vectors)


@EVERY_MATCHER
def test_half_precision_in_gives_nearly_the_same(name: str) -> None:
    matcher = MATCHERS[name]()
    query, gallery = random_pictures(1, 20, DIM, seed=0), random_pictures(4, 17, DIM, seed=1)
    with torch.no_grad():
        ready = matcher.prepare(gallery)
        stored = ready.to(torch.float16)
        score = matcher.score(matcher.prepare(query), stored)
        assert score.dtype == torch.float32
        torch.testing.assert_close(score, matcher(query, gallery), rtol=5e-3, atol=5e-3)


def test_prepare_keeps_what_it_does_not_change(matcher: Matcher) -> None:
    given_ = replace(
        random_pictures(2, 5, DIM, seed=0),
        xy=torch.rand(2, 5, 2),
        strength=torch.rand(2, 5),
        size=torch.tensor([[640, 480]] * 2),
        image_vector=torch.randn(2, 3),
    )
    ready = matcher.prepare(given_)
    for name in ("mask", "xy", "strength", "size", "image_vector"):
        assert getattr(ready, name) is getattr(given_, name)
    lengths = ready.vectors.norm(dim=-1)
    torch.testing.assert_close(lengths, torch.ones_like(lengths))


def test_unknown_names_and_settings_are_listed() -> None:
    with pytest.raises(UnknownName, match="chamfer, chamfer-ot, elvis"):
        load_model("elvish")
    with pytest.raises(TypeError, match=r"among \['standardise'\], got \['rounds'\]"):
        load_model("chamfer", rounds=3)
    with pytest.raises(WeightsError, match="has no parameters"):
        load_model("chamfer", "weights")


def test_int8_descriptors_count_by_their_direction(matcher: Matcher) -> None:
    """In every form: fused kernel, scalings and, with a gradient, both backwards."""
    query, gallery = (matcher.prepare(random_pictures(n, 9, 12, seed=n)) for n in (1, 3))
    largest = gallery.vectors.abs().amax(dim=2, keepdim=True)
    small = replace(gallery, vectors=(gallery.vectors / largest * 127).round().to(torch.int8))
    as_stored = replace(gallery, vectors=torch.nn.functional.normalize(small.vectors.float(), dim=2))
    expected = matcher.score(query, as_stored)
    torch.testing.assert_close(matcher.score(query, small), expected, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(matcher.explain_prepared(query, small).score, expected, rtol=1e-4, atol=1e-4)
    learning = replace(query, vectors=query.vectors.detach().clone().requires_grad_())
    torch.testing.assert_close(matcher.score(learning, small), expected, rtol=1e-4, atol=1e-4)
