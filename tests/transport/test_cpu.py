"""The CPU kernel against the log-domain reference in float64."""

import math
import subprocess
import sys
import threading

import pytest
import torch
import torch.nn.functional as F

from elvis.transport import cpu, reference
from elvis.transport.cpu.problem import Problem

pytestmark = pytest.mark.skipif(cpu.available() is not None, reason=str(cpu.available()))

FAST, EXACT = 3e-4, 1e-5  # largest error of a strength, and of the exact form relative to the largest strength
SHAPES = [(1, 1, 1), (3, 17, 29), (2, 100, 75), (1, 257, 3), (1, 3, 257)]


def unit(*shape, seed=0):
    return F.normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


def case(pairs, m, n, channels=48, *, queries=1, seed=0):
    """Two pictures that share part of their descriptors, with dust-bin gains; everything real."""
    generator = torch.Generator().manual_seed(seed)
    query, gallery = unit(queries, m, channels, seed=seed), unit(pairs, n, channels, seed=seed + 1)
    shared = min(m, n) // 3
    gallery[:, :shared] = F.normalize(query[:, :shared] + 0.3 * gallery[:, :shared] / channels**0.5, dim=-1)
    return {
        "query": query,
        "gallery": gallery,
        "query_gain": torch.randn(queries, m, generator=generator).tanh(),
        "gallery_gain": torch.randn(pairs, n, generator=generator).tanh(),
        "corner": 1.0,
        "temperature": 0.1,
        "rounds": 10,
        "query_mask": torch.ones(queries, m, dtype=torch.bool),
        "gallery_mask": torch.ones(pairs, n, dtype=torch.bool),
    }


def truth(given):
    """Row and column maxima by the log domain in float64; int8 vectors only say where they point."""

    def real(name):
        x = given[name].double()
        x = F.normalize(x, dim=-1) if given[name].dtype == torch.int8 else x
        return x.masked_fill(~given[f"{name}_mask"][..., None], 0)

    query, gallery = real("query"), real("gallery")
    plan = reference.sinkhorn(
        torch.einsum("bid,bjd->bij", query.expand(len(gallery), -1, -1), gallery),
        given["query_gain"].double(),
        given["gallery_gain"].double(),
        given["corner"],
        temperature=given["temperature"],
        rounds=given["rounds"],
        query_mask=given["query_mask"],
        gallery_mask=given["gallery_mask"],
    )
    return plan.row_max, plan.column_max


def check(given, *, exact, machine=None, expected=None, threads=1):
    got = run(given, exact=exact, machine=machine, threads=threads)
    expected = expected or truth(given)
    for strengths, correct in zip(got, expected, strict=True):
        assert strengths.dtype == torch.float32
        tolerance = EXACT * max(1e-30, float(correct.max())) if exact else FAST
        worst = float((strengths - correct).abs().max())
        assert worst <= tolerance, f"off by {worst:.1e}, allowed {tolerance:.1e}"
    return got


def run(given, *, exact, machine=None, threads=1):
    if machine is None:
        return cpu.strengths(**given, exact=exact, threads=threads)
    from elvis.transport.cpu.launch import solve

    return solve(Problem(**given), machine, exact=exact, threads=threads)


def machines():
    """Forms of the kernel that this processor can run; those that add little to the others are slow tests."""
    if cpu.available() is not None:
        return []
    from elvis.transport.cpu.machine import Machine, host

    here = host()
    pairs = "llvm.x86.{}"
    more = [Machine("plain", 4, 12, None, here.triple, here.cpu, here.features)]
    forms = [here]
    if here.name in ("avx512", "avx2", "sse2"):
        forms.append(Machine("x86-64", 4, 6, pairs.format("sse2.pmadd.wd"), here.triple, "x86-64"))
        more.append(Machine("x86-64-v2", 4, 6, pairs.format("sse2.pmadd.wd"), here.triple, "x86-64-v2"))
    if here.name in ("avx512", "avx2"):
        forms.append(Machine("haswell", 8, 6, pairs.format("avx2.pmadd.wd"), here.triple, "haswell"))
    if here.name == "avx512":
        more.append(Machine("skylake", 16, 12, pairs.format("avx512.pmaddw.d.512"), here.triple, "skylake-avx512"))
    return [
        pytest.param(machine, id=machine.name, marks=marks)
        for some, marks in ((forms, ()), (more, pytest.mark.slow))
        for machine in some
    ]


every_form = pytest.mark.parametrize("exact", [False, True], ids=["fast", "exact"])
every_machine = pytest.mark.parametrize("machine", machines())


@every_form
@pytest.mark.parametrize("shape", SHAPES)
def test_agrees_with_float64_reference(shape, exact):
    check(case(*shape), exact=exact)


@every_form
@every_machine
def test_every_instruction_set_agrees(machine, exact):
    given = case(2, 61, 43, channels=37)
    given["gallery_mask"][1, 20:] = False
    check(given, exact=exact, machine=machine)


@every_form
@every_machine
@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.int8])
def test_stored_types_on_every_instruction_set(machine, kind, exact):
    given = case(2, 20, 31)
    scale = 127 if kind == torch.int8 else 1
    given["gallery"] = (given["gallery"] * scale).round(decimals=0 if scale > 1 else 3).to(kind)
    check(given, exact=exact, machine=machine)


@pytest.mark.slow
@every_form
@every_machine
@pytest.mark.parametrize("shape", [(2, 700, 700), (2, 1024, 900), (1, 5, 1024), (1, 1500, 1300)])
def test_large_shapes(shape, machine, exact):
    check(case(*shape, channels=128), exact=exact, machine=machine)


@every_form
def test_six_hundred_descriptors(exact):
    check(case(2, 600, 600, channels=128), exact=exact)


@every_form
@pytest.mark.parametrize("channels", [1, 2, 7, 128, 130, 384, 1152])
def test_any_number_of_channels(channels, exact):
    check(case(1, 33, 26, channels), exact=exact)


@every_form
@pytest.mark.parametrize("temperature", [0.05, 0.0713, 0.1, 0.3, 1.0, 20.0])
@pytest.mark.parametrize("rounds", [1, 2, 20])
def test_any_temperature_and_number_of_rounds(temperature, rounds, exact):
    check({**case(2, 40, 50), "temperature": temperature, "rounds": rounds}, exact=exact)


@every_form
@pytest.mark.parametrize("corner", [-200.0, -30.0, -1.0, 0.0, 1.0, 5.0, 200.0])
@pytest.mark.parametrize("shape", [(2, 40, 50), (1, 1, 200), (1, 200, 1)])
def test_corner_is_unbounded(corner, shape, exact):
    for temperature, rounds in ((0.1, 10), (0.05, 20)):
        check({**case(*shape), "corner": corner, "temperature": temperature, "rounds": rounds}, exact=exact)


def one_hot(*shape):
    places = torch.randint(16, shape, generator=torch.Generator().manual_seed(3))
    return torch.eye(16)[places]


def clustered(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    centres = unit(20, 16, seed=9)[torch.randint(20, shape, generator=generator)]
    return F.normalize(centres + 0.02 * torch.randn(*shape, 16, generator=generator), dim=-1)


STRESS = {
    "zero vectors": (torch.zeros(1, 30, 16), unit(2, 40, 16)),
    "identical": (unit(1, 40, 16), unit(1, 40, 16).expand(2, -1, -1)),
    "opposed": (unit(1, 40, 16), -unit(1, 40, 16).expand(2, -1, -1)),
    "all the same vector": (unit(1, 1, 16).expand(1, 30, 16), unit(1, 1, 16).expand(2, 40, 16)),
    "all opposed": (unit(1, 1, 16).expand(1, 30, 16), -unit(1, 1, 16).expand(2, 40, 16)),
    "one-hot": (one_hot(1, 30), one_hot(2, 40)),
    "20 clusters": (clustered(1, 30), clustered(2, 40, seed=1)),
}


@every_form
@pytest.mark.parametrize("name", STRESS)
@pytest.mark.parametrize("gain", [-0.999, 0.0, 0.999])
def test_extreme_pictures(name, gain, exact):
    query, gallery = STRESS[name]
    given = case(2, query.shape[1], gallery.shape[1], 16)
    given.update(query=query, gallery=gallery)
    given["query_gain"].fill_(gain)
    given["gallery_gain"].fill_(gain)
    for temperature in (0.05, 0.1):
        check({**given, "temperature": temperature}, exact=exact)


@every_form
def test_gains_up_to_thirty_times_the_temperature(exact):
    given = case(2, 40, 50)
    given["query_gain"] = torch.linspace(-3, 3, 40)[None]
    given["gallery_gain"] = torch.linspace(3, -3, 50).expand(2, -1)
    check(given, exact=exact)


@every_form
def test_without_dustbins(exact):
    given = case(2, 40, 40) | {"query_gain": None, "gallery_gain": None}
    similarity = torch.einsum("bid,bjd->bij", given["query"].expand(2, -1, -1).double(), given["gallery"].double())
    plan = reference.sinkhorn(
        similarity,
        None,
        None,
        0.0,
        temperature=0.1,
        rounds=10,
        query_mask=given["query_mask"],
        gallery_mask=given["gallery_mask"],
    )
    check(given, exact=exact, expected=(plan.row_max, plan.column_max))


@every_form
def test_padding_is_never_read_and_never_matters(exact):
    given = case(3, 30, 25)
    alone = run(given, exact=exact)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    back = order.argsort()[:25]  # where each real gallery descriptor goes
    padded = dict(given)
    for name, filler in (("gallery", math.nan), ("gallery_gain", math.inf)):
        old = given[name]
        new = torch.full((3, 40, *old.shape[2:]), filler)
        new[:, back] = old
        padded[name] = new
    padded["gallery_mask"] = torch.zeros(3, 40, dtype=torch.bool)
    padded["gallery_mask"][:, back] = True
    rows, columns = run(padded, exact=exact)
    torch.testing.assert_close(rows, alone[0], atol=2e-6, rtol=1e-5)  # the order of sums differs
    torch.testing.assert_close(columns[:, back], alone[1], atol=2e-6, rtol=1e-5)
    assert not columns[~padded["gallery_mask"]].any()

    for name, value in (("query", math.nan), ("query_gain", math.nan), ("query_mask", False)):
        old = given[name]
        new = torch.full((1, 47, *old.shape[2:]), value, dtype=old.dtype)
        new[:, :30] = old
        padded[name] = new
    more_rows, more_columns = run(padded, exact=exact)
    assert torch.equal(more_rows[:, :30], rows)
    assert not more_rows[:, 30:].any()
    assert torch.equal(more_columns, columns)


@every_form
def test_all_padding_gives_zeros(exact):
    given = case(3, 30, 25)
    given["gallery_mask"][1] = False
    rows, columns = check({**given}, exact=exact, expected=_zeros_for_empty(given))
    assert not rows[1].any()
    assert not columns[1].any()
    given["query_mask"][:] = False
    rows, columns = run(given, exact=exact)
    assert not rows.any()
    assert not columns.any()


def _zeros_for_empty(given):
    return tuple(part.nan_to_num() for part in truth(given))


@every_form
def test_result_depends_on_neither_batch_nor_threads(exact):
    given = case(23, 30, 25)
    together = run(given, exact=exact, threads=1)
    for threads in (2, 3, 64):
        for got, expected in zip(run(given, exact=exact, threads=threads), together, strict=True):
            assert torch.equal(got, expected)
    for pair in (0, 22):
        one = {name: v[pair : pair + 1] if name.startswith("gallery") else v for name, v in given.items()}
        for got, expected in zip(run(one, exact=exact), together, strict=True):
            assert torch.equal(got[0], expected[pair])


@every_form
def test_a_query_for_each_pair(exact):
    given = case(4, 30, 25, queries=4)
    given["query_mask"][2, 10:] = False
    check(given, exact=exact, threads=2)
    same = case(4, 30, 25)
    repeated = {name: v.expand(4, *v.shape[1:]) if name.startswith("query") else v for name, v in same.items()}
    for got, expected in zip(run(repeated, exact=exact), run(same, exact=exact), strict=True):
        assert torch.equal(got, expected)


def test_types_and_strides_of_both_sides_may_differ():
    given = case(2, 30, 25)
    given["query"] = given["query"].half().transpose(1, 2).contiguous().transpose(1, 2)
    given["gallery"] = (given["gallery"] * 127).round().to(torch.int8)[:, ::2]
    given["gallery_gain"] = given["gallery_gain"][:, ::2].half()
    given["gallery_mask"] = given["gallery_mask"][:, ::2]
    check(given, exact=False)


def test_scale_of_int8_does_not_matter():
    given = case(2, 30, 25)
    largest = given["gallery"].abs().amax(dim=2, keepdim=True)
    given["gallery"] = (given["gallery"] / largest * 127).round().to(torch.int8)
    check(given, exact=False)


@every_form
@pytest.mark.parametrize("side", ["query", "gallery"])
@pytest.mark.parametrize("factor", [1.02, 1e9, math.nan])
def test_vectors_longer_than_one_are_refused(side, factor, exact):
    given = case(5, 30, 25)
    given[side] = given[side].clone()
    given[side][-1, 7] *= factor
    with pytest.raises(ValueError, match=f"{side}: expected vectors of length 1 at most"):
        run(given, exact=exact, threads=2)
    given[f"{side}_mask"][-1, 7] = False
    run(given, exact=exact)


def test_many_callers_at_once():
    given = case(8, 30, 25)
    expected = run(given, exact=False)
    results = [None] * 6

    def call(i):
        results[i] = run(given, exact=False, threads=2)

    callers = [threading.Thread(target=call, args=(i,)) for i in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    for result in results:
        assert torch.equal(result[0], expected[0])
        assert torch.equal(result[1], expected[1])


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="this system cannot fork")
def test_works_in_a_forked_child():
    code = """
import os, sys, warnings
warnings.simplefilter("ignore")
import torch
from elvis.transport import cpu
x = torch.eye(8).expand(6, 8, 8); gain = torch.zeros(6, 8); mask = torch.ones(6, 8, dtype=torch.bool)
solve = lambda: cpu.strengths(x, x, gain, gain, 0.0, 0.1, 5, mask, mask, exact=True, threads=3)[0]
first = solve()
child = os.fork()
if child == 0:
    os._exit(0 if torch.equal(solve(), first) else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"temperature": 0.01}, ValueError, "temperature: expected at least 0.05, got 0.01"),
        ({"rounds": 0}, ValueError, "rounds: expected at least 1, got 0"),
        ({"query": torch.zeros(1, 30, 7)}, ValueError, "query and gallery: expected"),
        ({"query": torch.zeros(3, 30, 48)}, ValueError, "query: expected a batch of 1 or of 2, got 3"),
        ({"gallery": torch.zeros(2, 25, 48).double()}, TypeError, "gallery: expected one of float32"),
        ({"gallery_gain": torch.zeros(2, 24)}, ValueError, "gallery_gain: expected shape"),
        ({"query_mask": torch.zeros(1, 30)}, TypeError, "query_mask: expected dtype torch.bool"),
        ({"query_gain": None}, ValueError, "gains: expected both or none"),
    ],
)
def test_wrong_arguments_are_named(change, error, message):
    with pytest.raises(error, match=message):
        run({**case(2, 30, 25), **change}, exact=False)
