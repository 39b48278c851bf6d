"""The fast gradient of the strengths against plain autograd through the log domain."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from elvis import Descriptors
from elvis.transport import SAFE_EXPONENT, gradient, reference, strengths
from examples import random_pictures, small_elvis

NAMES = ("query", "gallery", "query_gain", "gallery_gain", "corner", "temperature")
Leaves = dict[str, Tensor]


def leaves(
    m: int, n: int, *, queries: int = 3, pairs: int = 3, corner: float = 1.0, temperature: float = 0.1, seed: int = 0
) -> Leaves:
    """Everything that a gradient can be asked for, in float64."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    given = {
        "query": F.normalize(draw(queries, m, 6), dim=-1),
        "gallery": F.normalize(draw(pairs, n, 6), dim=-1),
        "query_gain": draw(queries, m).tanh(),
        "gallery_gain": draw(pairs, n).tanh(),
        "corner": torch.tensor(corner, dtype=torch.float64),
        "temperature": torch.tensor(temperature, dtype=torch.float64),
    }
    return {name: value.requires_grad_() for name, value in given.items()}


def some_masks(given: Leaves) -> dict[str, Tensor]:
    """Another number of real descriptors in each picture, the padding scattered."""
    generator = torch.Generator().manual_seed(1)
    real = {}
    for side in ("query", "gallery"):
        pictures, places, _ = given[side].shape
        real[side] = torch.rand(pictures, places, generator=generator) < 0.7
        real[side][:, 0] = True
    return real


def everything_real(given: Leaves) -> dict[str, Tensor]:
    return {side: torch.ones(given[side].shape[:2], dtype=torch.bool) for side in ("query", "gallery")}


def ours(given: Leaves, real: dict[str, Tensor], rounds: int) -> tuple[Tensor, Tensor]:
    query, gallery = (Descriptors(given[side], real[side], gain=given[f"{side}_gain"]) for side in ("query", "gallery"))
    return gradient.strengths(query, gallery, given["corner"], given["temperature"], rounds)


def truth(given: Leaves, real: dict[str, Tensor], rounds: int) -> tuple[Tensor, Tensor]:
    plan = reference.sinkhorn(
        torch.einsum("bid,bjd->bij", given["query"].expand(len(given["gallery"]), -1, -1), given["gallery"]),
        given["query_gain"],
        given["gallery_gain"],
        given["corner"],
        temperature=given["temperature"],
        rounds=rounds,
        query_mask=real["query"],
        gallery_mask=real["gallery"],
    )
    return plan.row_max, plan.column_max


def derivatives(found: tuple[Tensor, Tensor], given: Leaves) -> dict[str, Tensor]:
    """Of a loss in which every strength has a weight of its own."""
    generator = torch.Generator().manual_seed(2)
    loss = sum(
        (part.double() * torch.randn(part.shape, generator=generator, dtype=torch.float64)).sum() for part in found
    )
    return dict(zip(NAMES, torch.autograd.grad(loss, [given[name] for name in NAMES]), strict=True))


def check(given: Leaves, real: dict[str, Tensor], rounds: int, error: float = 1e-10) -> None:
    found, expected = ours(given, real, rounds), truth(given, real, rounds)
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-12)
    mine, theirs = derivatives(found, given), derivatives(expected, given)
    for name in NAMES:
        scale = max(1.0, float(theirs[name].abs().max()))
        torch.testing.assert_close(
            mine[name], theirs[name], rtol=0, atol=error * scale, msg=lambda m, n=name: f"{n} {m}"
        )


both_masks = pytest.mark.parametrize("masks", [everything_real, some_masks])


@both_masks
@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (7, 12), (31, 17)])
@pytest.mark.parametrize("rounds", [1, 2, 10, 20])
def test_equals_autograd_through_the_log_domain(shape: tuple[int, int], rounds: int, masks: object) -> None:
    given = leaves(*shape)
    check(given, masks(given), rounds)


@both_masks
@pytest.mark.parametrize("temperature", [0.05, 0.1, 0.3, 1.0])
@pytest.mark.parametrize("corner", [-30.0, -3.0, 0.0, 0.4, 3.0, 30.0])
def test_any_corner_and_temperature(corner: float, temperature: float, masks: object) -> None:
    given = leaves(8, 11, corner=corner, temperature=temperature)
    check(given, masks(given), rounds=10)


@both_masks
def test_a_query_of_one_collects_from_all_pairs(masks: object) -> None:
    given = leaves(8, 11, queries=1, pairs=5)
    check(given, masks(given), rounds=10)


@pytest.mark.parametrize("queries", [1, 5])
def test_pairs_in_runs_are_the_pairs_at_once(monkeypatch: pytest.MonkeyPatch, queries: int) -> None:
    given = leaves(8, 11, queries=queries, pairs=5)
    at_once = derivatives(ours(given, some_masks(given), 10), given)
    monkeypatch.setattr(gradient, "CPU_BLOCK", 2 * 9 * 12)
    in_runs = derivatives(ours(given, some_masks(given), 10), given)
    for name in NAMES:
        torch.testing.assert_close(in_runs[name], at_once[name], rtol=1e-12, atol=1e-14)


def test_gradcheck() -> None:
    given = leaves(4, 5, queries=1, pairs=2, temperature=0.4)
    real = some_masks(given)

    def found(*values: Tensor) -> tuple[Tensor, Tensor]:
        return ours(dict(zip(NAMES, values, strict=True)), real, 3)

    assert torch.autograd.gradcheck(found, tuple(given.values()))


def test_only_what_is_asked_for_gets_a_gradient() -> None:
    for name in NAMES:
        given = {other: value.detach() for other, value in leaves(4, 5).items()}
        given[name].requires_grad_()
        rows, columns = ours(given, everything_real(given), 5)
        (rows.sum() + columns.sum()).backward()
        assert [other for other, value in given.items() if value.grad is not None] == [name]
        assert float(given[name].grad.abs().sum()) > 0


def test_a_second_derivative_is_refused() -> None:
    given = leaves(4, 5)
    rows, _ = ours(given, everything_real(given), 5)
    (first,) = torch.autograd.grad(rows.square().sum(), given["query"], create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        first.sum().backward()


@pytest.mark.parametrize(
    ("shape", "corner", "temperature"),
    [
        ((40, 30), 1.0, 0.1),
        ((40, 30), 30.0, 0.05),
        ((40, 30), -30.0, 0.05),
        ((1, 19), 30.0, 0.05),
        ((19, 1), -30.0, 0.05),
    ],
)
def test_float32_keeps_float32_accuracy(shape: tuple[int, int], corner: float, temperature: float) -> None:
    exact = leaves(*shape, corner=corner, temperature=temperature)
    rough = {name: value.detach().float().requires_grad_() for name, value in exact.items()}
    real = some_masks(exact)
    picture = {side: Descriptors(rough[side], real[side], gain=rough[f"{side}_gain"]) for side in real}
    assert gradient.holds(*picture.values(), corner, temperature, 10, SAFE_EXPONENT)
    theirs, mine = derivatives(truth(exact, real, 10), exact), derivatives(ours(rough, real, 10), rough)
    for name in NAMES:
        scale = max(1.0, float(theirs[name].abs().max()))
        torch.testing.assert_close(mine[name].double(), theirs[name], rtol=0, atol=2e-4 * scale)


def test_what_stands_at_padding_never_matters() -> None:
    given = leaves(8, 11)
    real = some_masks(given)
    before = derivatives(ours(given, real, 10), given)
    with torch.no_grad():
        for side in ("query", "gallery"):
            given[side][~real[side]] = 1e30
            given[f"{side}_gain"][~real[side]] = -1e30
    after = derivatives(ours(given, real, 10), given)
    for name in NAMES:
        torch.testing.assert_close(after[name], before[name], rtol=0, atol=0)
    for side in ("query", "gallery"):
        assert not after[side][~real[side]].any()


def test_mixed_precision_does_not_reach_it() -> None:
    given = {name: value.detach().float().requires_grad_() for name, value in leaves(20, 30).items()}
    outside = derivatives(ours(given, everything_real(given), 10), given)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = derivatives(ours(given, everything_real(given), 10), given)
    for name in NAMES:
        assert torch.equal(inside[name], outside[name])


def test_no_matrix_is_kept_for_the_way_back() -> None:
    kept: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    given = leaves(60, 50)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        ours(given, everything_real(given), 10)
    matrices = [tensor.shape for tensor in kept if tensor.shape[-2:].numel() >= 60 * 50]
    assert kept
    assert not matrices


class TestChoice:
    """What `elvis.transport.strengths` takes for a gradient."""

    def taken(
        self, monkeypatch: pytest.MonkeyPatch, query: Descriptors, gallery: Descriptors, **settings: float
    ) -> str:
        chosen: list[str] = []
        for module, name in ((gradient, "strengths"), (reference, "sinkhorn")):
            original = getattr(module, name)

            def spy(*a: object, original: object = original, module: object = module, **k: object) -> object:
                chosen.append(module.__name__.rpartition(".")[2])
                return original(*a, **k)

            monkeypatch.setattr(module, name, spy)
        corner = torch.tensor(settings.pop("corner", 1.0), requires_grad=True)
        found = strengths(query, gallery, corner, **{"temperature": 0.1, "rounds": 10, **settings})
        assert found.query.requires_grad
        assert found.query.isfinite().all()
        return chosen[0]

    def picture(self, count: int, *, gain: float = 1.0, length: float = 1.0) -> Descriptors:
        vectors = length * F.normalize(torch.randn(1, count, 8), dim=-1)
        return Descriptors(vectors, gain=torch.full((1, count), gain))

    def test_the_scalings_where_they_hold(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.taken(monkeypatch, self.picture(5), self.picture(7)) == "gradient"

    @pytest.mark.parametrize("why", ["temperature", "gain", "length", "counts", "no dust-bins"])
    def test_the_log_domain_elsewhere(self, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
        query, gallery, settings = self.picture(5), self.picture(7), {}
        if why == "temperature":
            settings = {"temperature": 0.9 / SAFE_EXPONENT}
        elif why == "gain":
            gallery = self.picture(7, gain=-3.1)
        elif why == "length":
            query = self.picture(5, length=3.1)
        elif why == "counts":
            gallery = self.picture(5 * math.ceil(math.exp(gradient.SAFE_GROWTH / 20)))
            settings = {"rounds": 21, "corner": 4.0}
        else:
            query, gallery = (Descriptors(self.picture(5).vectors.requires_grad_()) for _ in range(2))
        assert self.taken(monkeypatch, query, gallery, **settings) == "reference"

    @pytest.mark.parametrize(("settings", "words"), [({"rounds": 0}, "rounds"), ({"temperature": 0.0}, "temperature")])
    def test_bad_settings_are_named(self, settings: dict[str, float], words: str) -> None:
        corner = torch.ones((), requires_grad=True)
        with pytest.raises(ValueError, match=f"{words}: expected"):
            strengths(self.picture(5), self.picture(5), corner, **{"temperature": 0.1, "rounds": 10, **settings})


def test_a_training_step_has_the_gradients_of_the_log_domain(monkeypatch: pytest.MonkeyPatch) -> None:
    head = small_elvis(learn_temperature=True).double()
    query, gallery = (
        Descriptors(random_pictures(4, count, 12, seed=seed, dtype=torch.float64).vectors, torch.rand(4, count) < 0.8)
        for seed, count in ((1, 20), (2, 31))
    )
    labels = torch.tensor([1.0, 0.0, 1.0, 0.0], dtype=torch.float64)

    def step() -> list[Tensor]:
        loss = F.binary_cross_entropy_with_logits(head.logits(query, gallery), labels)
        return list(torch.autograd.grad(loss, list(head.parameters())))

    fast = step()
    monkeypatch.setattr(gradient, "holds", lambda *_: False)
    for mine, theirs in zip(fast, step(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12)
