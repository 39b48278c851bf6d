"""The GPU kernel against the log-domain reference in float64: in Triton's interpreter, and on a GPU if there is one."""

import importlib
import importlib.util
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

from elvis.transport import gpu, reference

triton_is_there = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
every_form = pytest.mark.parametrize("exact", [False, True], ids=["fast", "exact"])
FAST, EXACT = 1e-3, 1e-5  # fast: float32 is rounded to half precision first, which λ = 0.05 magnifies most


@pytest.fixture
def interpreter(monkeypatch):
    """Triton's functions are bound to the interpreter when they are defined: define them anew, and again afterwards."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    kernel = importlib.reload(importlib.import_module("elvis.transport.gpu_kernel"))
    yield "cpu"
    monkeypatch.undo()
    importlib.reload(kernel)


def case(pairs, m, n, channels=48, *, queries=1):
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, generator=generator)

    query = F.normalize(draw(queries, m, channels), dim=-1)
    gallery = F.normalize(draw(pairs, n, channels), dim=-1)
    shared = min(m, n) // 3
    gallery[:, :shared] = F.normalize(query[:, :shared] + 0.3 * gallery[:, :shared] / channels**0.5, dim=-1)
    return {
        "query": query,
        "gallery": gallery,
        "query_gain": draw(queries, m).tanh(),
        "gallery_gain": draw(pairs, n).tanh(),
        "corner": 1.0,
        "temperature": 0.1,
        "rounds": 10,
        "query_mask": torch.ones(queries, m, dtype=torch.bool),
        "gallery_mask": torch.ones(pairs, n, dtype=torch.bool),
    }


def check(given, device, *, exact):
    def real(name):
        x = given[name].double()
        x = F.normalize(x, dim=-1) if given[name].dtype == torch.int8 else x
        return x.masked_fill(~given[f"{name}_mask"][..., None], 0)

    plan = reference.sinkhorn(
        torch.einsum("bid,bjd->bij", real("query").expand(len(given["gallery"]), -1, -1), real("gallery")),
        given["query_gain"].double(),
        given["gallery_gain"].double(),
        given["corner"],
        temperature=given["temperature"],
        rounds=given["rounds"],
        query_mask=given["query_mask"],
        gallery_mask=given["gallery_mask"],
    )
    moved = {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in given.items()}
    for got, correct in zip(gpu.strengths(**moved, exact=exact), (plan.row_max, plan.column_max), strict=True):
        worst = float((got.cpu() - correct.nan_to_num()).abs().max())
        assert worst <= (EXACT if exact else FAST), f"off by {worst:.1e}"


def small_cases():
    yield "one", case(1, 1, 1)
    yield "odd", case(3, 17, 29, 7)
    yield "more than a block", case(1, 70, 65, 33)
    yield "a query each", case(2, 20, 9, queries=2)
    yield "corner above", case(1, 3, 40) | {"corner": 5.0, "temperature": 0.05, "rounds": 20}
    yield "corner below", case(1, 20, 9) | {"corner": -30.0}
    yield "one round", case(1, 20, 9) | {"rounds": 1, "temperature": 1.0}
    opposed = case(1, 20, 20)
    yield "opposed", opposed | {"gallery": -opposed["query"]}
    padded = case(3, 20, 9)
    padded["gallery_mask"][0, 3:] = False
    padded["gallery_mask"][1] = False
    padded["query_mask"][0, ::3] = False
    padded["gallery"][0, 3:] = torch.nan
    yield "padding", padded


SMALL = dict(small_cases())


@triton_is_there
@every_form
@pytest.mark.parametrize("name", SMALL)
def test_agrees_with_float64_reference_in_the_interpreter(name, exact, interpreter):
    check(SMALL[name], interpreter, exact=exact)


@triton_is_there
@pytest.mark.parametrize("kind", [torch.float16, torch.int8])
def test_stored_types_in_the_interpreter(kind, interpreter):
    given = case(2, 20, 9)
    given["gallery"] = (given["gallery"] * (127 if kind == torch.int8 else 1)).round(decimals=3).to(kind)
    check(given, interpreter, exact=False)


COMPILE = """
import sys, warnings
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from elvis.transport.gpu_kernel import match

query, gallery, product = sys.argv[1:]
chosen = dict(PRODUCT=tl.float32 if product == "fp32" else tl.float16, ROWS=1024, COLUMNS=16, STAGES=3, BLOCK=64,
              DEPTH=32, QUERY_INT8=False, GALLERY_INT8=gallery == "i8")
pointers = {name: "*fp32" for name in ("query_gain", "gallery_gain", "sums", "query_strengths", "gallery_strengths")}
pointers |= {"query": f"*{query}", "gallery": f"*{gallery}", "matrix": f"*{product}", "constants": "*fp64"}
pointers |= {"query_mask": "*u8", "gallery_mask": "*u8"}
names = match.arg_names
source = ASTSource(match, {n: "constexpr" if n in chosen else pointers.get(n, "i32") for n in names}, constexprs=chosen)
source.attrs = {(names.index(n),): [["tt.divisibility", 16]] for n in [*pointers, "m_room", "channels"]}
compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8})
assert compiled.asm["cubin"] and compiled.metadata.shared <= 227 * 1024
assert "cp.async" in compiled.asm["ptx"], "K is not loaded ahead"
"""


@triton_is_there
@pytest.mark.slow
@pytest.mark.parametrize("types", [("fp16", "fp16", "fp16"), ("fp16", "i8", "fp16"), ("fp32", "fp32", "fp32")])
def test_compiles_for_an_h200(types, tmp_path):
    """Not run, but turned into machine code; in a process of its own, as the interpreter leaves marks on Triton."""
    environment = {**os.environ, "TRITON_DEFAULT_FP_FUSION": "1", "TRITON_CACHE_DIR": str(tmp_path)}
    environment.pop("TRITON_INTERPRET", None)
    program = tmp_path / "compile.py"
    program.write_text(COMPILE)
    done = subprocess.run([sys.executable, str(program), *types], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@triton_is_there
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@every_form
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 17, 29), (2, 700, 700), (2, 1024, 900), (64, 600, 600)])
@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16, torch.int8])
def test_agrees_with_float64_reference_on_a_gpu(shape, kind, exact):
    given = case(*shape, channels=130)
    if kind != torch.float32:
        given["gallery"] = (given["gallery"] * (127 if kind == torch.int8 else 1)).round(decimals=3).to(kind)
    check(given, "cuda", exact=exact)


@triton_is_there
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("name", SMALL)
def test_small_cases_on_a_gpu(name):
    for exact in (False, True):
        check(SMALL[name], "cuda", exact=exact)


def test_says_why_it_cannot_run(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.available() in ("there is no CUDA device", "Triton is not installed")


def test_half_of_the_gains_is_refused():
    given = case(1, 3, 3) | {"query_gain": None}
    with pytest.raises(ValueError, match="gains: expected both or none"):
        gpu.strengths(**given, exact=True)
