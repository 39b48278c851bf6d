"""The reference against its definition and an independent solver; the scalings against the reference."""

import math

import numpy as np
import ot
import pytest
import torch

from elvis import Descriptors
from elvis.transport import SAFE_EXPONENT, reference, scaling, sinkhorn, strengths


def problem(pairs: int, m: int, n: int, *, seed: int = 0, dtype: torch.dtype = torch.float64) -> dict:
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=generator, dtype=dtype) * 2 - 1

    return {"similarity": uniform(pairs, m, n), "query_gain": uniform(pairs, m), "gallery_gain": uniform(pairs, n)}


def masks(pairs: int, m: int, n: int) -> dict:
    return {
        "query_mask": torch.ones(pairs, m, dtype=torch.bool),
        "gallery_mask": torch.ones(pairs, n, dtype=torch.bool),
    }


def test_an_independent_solver_agrees() -> None:
    given = problem(1, 5, 7)
    plan = sinkhorn(**given, corner=0.7, rounds=2000)
    augmented = np.full((6, 8), 0.7)
    augmented[:5, :7] = given["similarity"][0]
    augmented[:5, 7] = given["query_gain"][0]
    augmented[5, :7] = given["gallery_gain"][0]
    theirs = ot.sinkhorn([1] * 5 + [7], [1] * 7 + [5], -augmented, reg=0.1, stopThr=1e-13, numItermax=100_000)
    np.testing.assert_allclose(plan.plan[0], theirs[:5, :7], atol=1e-8)


def test_marginals_hold_at_convergence() -> None:
    given = problem(2, 6, 4)
    augmented = reference.sinkhorn(**given, corner=0.3, temperature=0.1, rounds=3000, **masks(2, 6, 4))
    to_bins = 1 - augmented.plan.sum(2), 1 - augmented.plan.sum(1)
    # What does not reach the other picture is in a dust-bin: never negative, and both sides move the same mass.
    assert all((rest > -1e-9).all() for rest in to_bins)
    torch.testing.assert_close(6 - to_bins[0].sum(1), 4 - to_bins[1].sum(1), atol=1e-9, rtol=0)


def test_without_dustbins_the_plan_is_doubly_stochastic() -> None:
    plan = sinkhorn(problem(2, 5, 5)["similarity"], rounds=500).plan
    ones = torch.ones(2, 5, dtype=torch.float64)
    torch.testing.assert_close(plan.sum(1), ones)
    torch.testing.assert_close(plan.sum(2), ones)


def test_without_dustbins_unequal_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="got 3 and 4 in pair 0"):
        sinkhorn(torch.zeros(1, 3, 4))


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 17, 29), (2, 120, 80)])
@pytest.mark.parametrize("temperature", [0.04, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("corner", [-30.0, -1.0, 0.0, 1.0, 8.0, 200.0])
@pytest.mark.parametrize("rounds", [1, 10])
def test_scalings_equal_the_reference(shape: tuple, temperature: float, corner: float, rounds: int) -> None:
    given = problem(*shape)
    settings = {"corner": corner, "temperature": temperature, "rounds": rounds, **masks(*shape)}
    truth = reference.sinkhorn(**given, **settings)
    fast = scaling.sinkhorn(**{name: value.float() for name, value in given.items()}, **settings)
    for name in ("plan", "row_max", "column_max"):
        torch.testing.assert_close(getattr(fast, name).double(), getattr(truth, name), atol=1e-5, rtol=0)


@pytest.mark.parametrize(("m", "n"), [(1, 200), (200, 1), (3, 500)])
@pytest.mark.parametrize("corner", [5.0, 50.0, -5.0])
def test_scalings_do_not_drift_where_sizes_differ(m: int, n: int, corner: float) -> None:
    given = problem(2, m, n)
    settings = {"corner": corner, "temperature": 0.05, "rounds": 40, **masks(2, m, n)}
    truth = reference.sinkhorn(**given, **settings)
    fast = scaling.sinkhorn(**{name: value.float() for name, value in given.items()}, **settings)
    torch.testing.assert_close(fast.row_max.double(), truth.row_max, atol=1e-5, rtol=0)
    torch.testing.assert_close(fast.column_max.double(), truth.column_max, atol=1e-5, rtol=0)


def test_maxima_are_those_of_the_plan() -> None:
    for form in (reference, scaling):
        plan = form.sinkhorn(**problem(3, 8, 5), corner=0.5, temperature=0.1, rounds=4, **masks(3, 8, 5))
        torch.testing.assert_close(plan.row_max, plan.plan.amax(2))
        torch.testing.assert_close(plan.column_max, plan.plan.amax(1))


@pytest.mark.parametrize("temperature", [0.02, 0.1])
def test_padding_changes_nothing_whatever_stands_there(temperature: float) -> None:
    given = problem(2, 6, 4, dtype=torch.float32)
    alone = sinkhorn(**given, corner=0.5, temperature=temperature, rounds=3)
    wide = {"similarity": torch.full((2, 9, 11), 1e30), "query_gain": torch.full((2, 9), -1e30)}
    wide["gallery_gain"] = torch.full((2, 11), 1e30)
    wide["similarity"][:, :6, :4] = given["similarity"]
    wide["query_gain"][:, :6] = given["query_gain"]
    wide["gallery_gain"][:, :4] = given["gallery_gain"]
    real = {"query_mask": torch.arange(9)[None] < 6, "gallery_mask": torch.arange(11)[None] < 4}
    padded = sinkhorn(**wide, corner=0.5, temperature=temperature, rounds=3, **real)
    torch.testing.assert_close(padded.row_max[:, :6], alone.row_max)
    torch.testing.assert_close(padded.column_max[:, :4], alone.column_max)
    assert padded.row_max[:, 6:].abs().sum() == padded.column_max[:, 4:].abs().sum() == 0


@pytest.mark.parametrize("form", [reference, scaling])
@pytest.mark.parametrize("empty", ["query_mask", "gallery_mask", "both"])
def test_all_padding_is_zero_and_finite(form: object, empty: str) -> None:
    real = masks(2, 3, 4)
    for name in real:
        if empty in (name, "both"):
            real[name] = torch.zeros_like(real[name])
    plan = form.sinkhorn(**problem(2, 3, 4), corner=1.0, temperature=0.1, rounds=5, **real)
    assert plan.row_max.abs().sum() == plan.column_max.abs().sum() == 0


def test_gradients_flow_through_all_rounds() -> None:
    given = {name: value.requires_grad_() for name, value in problem(1, 4, 3).items()}
    corner = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    temperature = torch.tensor(0.2, dtype=torch.float64, requires_grad=True)

    def maxima(similarity, u, v, corner, temperature):
        plan = sinkhorn(similarity, u, v, corner, temperature=temperature, rounds=4)
        return plan.row_max, plan.column_max

    assert torch.autograd.gradcheck(maxima, (*given.values(), corner, temperature))


def test_gradients_pass_padding_without_nan() -> None:
    given = {name: value.requires_grad_() for name, value in problem(2, 4, 3).items()}
    real = {"query_mask": torch.tensor([[True] * 4, [True, False, False, False]])}
    plan = sinkhorn(**given, **real)
    (plan.row_max.sum() + plan.column_max.sum()).backward()
    assert all(value.grad.isfinite().all() for value in given.values())


def test_small_temperature_takes_the_log_domain() -> None:
    given = problem(1, 6, 6, dtype=torch.float32)
    plan = sinkhorn(**given, temperature=0.9 / SAFE_EXPONENT)
    assert isinstance(plan, reference.LogPlan)
    assert isinstance(sinkhorn(**given, temperature=1.1 / SAFE_EXPONENT), scaling.ScaledPlan)
    assert plan.plan.isfinite().all()


def test_large_gains_take_the_log_domain() -> None:
    given = problem(1, 3, 3, dtype=torch.float32)
    given["query_gain"][0, 0] = 50.0
    plan = sinkhorn(**given)
    assert isinstance(plan, reference.LogPlan)
    assert float(plan.row_max[0, 0]) < 1e-6


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"similarity": torch.zeros(3, 3)}, ValueError, "similarity: expected floating point"),
        ({"temperature": 0.0}, ValueError, "temperature: expected a number above 0"),
        ({"temperature": math.nan}, ValueError, "temperature: expected a number above 0"),
        ({"rounds": 0}, ValueError, "rounds: expected at least 1"),
        ({"gallery_gain": None}, ValueError, "gains: expected both or none"),
        ({"query_gain": torch.zeros(2, 9)}, ValueError, r"query_gain: expected shape \(B, 4\)"),
        ({"query_mask": torch.ones(2, 4)}, TypeError, "query_mask: expected dtype torch.bool"),
        ({"gallery_mask": torch.ones(2, 9, dtype=torch.bool)}, ValueError, "gallery_mask: expected shape"),
    ],
)
def test_bad_arguments_are_named(change: dict, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        sinkhorn(**{**problem(2, 4, 3), **change})


@pytest.mark.parametrize("temperature", [0.04, 0.02], ids=["scalings", "log domain"])
def test_strengths_in_blocks_equal_strengths_at_once(monkeypatch: pytest.MonkeyPatch, temperature: float) -> None:
    query, gallery = prepared_pair()
    at_once = strengths(query, gallery, 1.0, temperature=temperature, rounds=10)
    monkeypatch.setattr("elvis.transport.similarity.CPU_BLOCK", 1000)
    in_blocks = strengths(query, gallery, 1.0, temperature=temperature, rounds=10)
    torch.testing.assert_close(in_blocks, at_once)


def prepared_pair() -> tuple[Descriptors, Descriptors]:
    vectors = torch.nn.functional.normalize(torch.randn(7, 20, 16), dim=-1)
    gallery = Descriptors(vectors, gain=torch.rand(7, 20))
    return gallery.select(2), gallery


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-5), (torch.float16, 1e-3), (torch.bfloat16, 2e-2)])
def test_a_search_takes_the_fused_kernel_where_it_fits(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, error: float
) -> None:
    from elvis.transport import cpu

    if cpu.available() is not None:
        pytest.skip(cpu.available())
    query, gallery = prepared_pair()
    truth = reference.sinkhorn(
        torch.einsum("md,bnd->bmn", query.vectors[0], gallery.vectors).double(),
        query.gain.expand(7, -1).double(),
        gallery.gain.double(),
        1.0,
        temperature=0.1,
        rounds=10,
        query_mask=query.mask,
        gallery_mask=gallery.mask,
    )
    monkeypatch.setattr(scaling, "sinkhorn", None)
    monkeypatch.setattr(reference, "sinkhorn", None)
    found = strengths(query, gallery.to(dtype), 1.0, temperature=0.1, rounds=10)
    torch.testing.assert_close(found.query.double(), truth.row_max, atol=error, rtol=0)
    torch.testing.assert_close(found.gallery.double(), truth.column_max, atol=error, rtol=0)


def test_without_the_kernel_one_line_says_so_and_the_answer_is_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from elvis import transport
    from elvis.transport import cpu

    query, gallery = prepared_pair()
    before = strengths(query, gallery, 1.0, temperature=0.1, rounds=10)
    transport._kernel_is_there.cache_clear()
    monkeypatch.setattr(cpu, "available", lambda: "no compiler in this test")
    after = [strengths(query, gallery, 1.0, temperature=0.1, rounds=10) for _ in range(2)][1]
    transport._kernel_is_there.cache_clear()
    torch.testing.assert_close(after, before, atol=1e-5, rtol=0)
    assert [record.message for record in caplog.records] == [
        "the fused kernel for cpu cannot run here: no compiler in this test; matching is several times slower"
    ]
