"""Exported graphs against the library, in PyTorch and in ONNX Runtime."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from elvis import Descriptors, export
from elvis.cli import main
from elvis.errors import MissingExtra
from elvis.models import Chamfer, Elvis
from examples import random_pictures, small_elvis

PLACES = 9
Graph = Callable[[dict[str, Tensor]], list[Tensor]]


def onnx_graph(path: Path) -> Graph:
    runtime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    session = runtime.InferenceSession(str(path))

    def run(inputs: dict[str, Tensor]) -> list[Tensor]:
        return [torch.from_numpy(found) for found in session.run(None, {k: v.numpy() for k, v in inputs.items()})]

    return run


def torch_graph(path: Path) -> Graph:
    module = torch.export.load(path).module()

    def run(inputs: dict[str, Tensor]) -> list[Tensor]:
        found = module(*inputs.values())
        return [found] if isinstance(found, Tensor) else list(found)

    return run


def exported(form: str, head: Elvis, folder: Path, places: int = PLACES) -> dict[str, Graph]:
    if form == "onnx":
        pytest.importorskip("onnxscript", reason="the extra `onnx` is not installed")
        files, load = export.export_onnx(head, folder, descriptors=places), onnx_graph
    else:
        files, load = export.export_program(head, folder, descriptors=places), torch_graph
    return {name: load(path) for name, path in files.items()}


def masked(pictures: int, places: int, dim: int, *, seed: int) -> Descriptors:
    mask = torch.rand(pictures, places, generator=torch.Generator().manual_seed(seed)) < 0.7
    mask[:, 0] = True
    return Descriptors(random_pictures(pictures, places, dim, seed=seed).vectors, mask)


def run(graphs: dict[str, Graph], query: Descriptors, gallery: Descriptors) -> Tensor:
    given: dict[str, Tensor] = {}
    for name, pictures in (("query", query), ("gallery", gallery)):
        vectors, gain = graphs["prepare"]({"vectors": pictures.vectors, "mask": pictures.mask})
        given |= {name: vectors, f"{name}_gain": gain, f"{name}_mask": pictures.mask}
    return graphs["score"](given)[0]


def check(form: str, head: Elvis, folder: Path, places: int = PLACES) -> None:
    graphs = exported(form, head, folder, places)
    dim = head.config.input_dim
    for pictures in (1, 4):
        query, gallery = masked(1, places, dim, seed=1), masked(pictures, places, dim, seed=2)
        with torch.no_grad():
            expected = head(query, gallery)
        found = run(graphs, query, gallery)
        assert found.shape == (pictures,)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)
    prepared = head.prepare(gallery)
    vectors, gain = graphs["prepare"]({"vectors": gallery.vectors, "mask": gallery.mask})
    torch.testing.assert_close(vectors, prepared.vectors.detach(), rtol=0, atol=1e-5)
    torch.testing.assert_close(gain, prepared.gain.detach(), rtol=0, atol=1e-5)


FORMS = pytest.mark.parametrize("form", ["torch", "onnx"])
SLOW = pytest.mark.slow
HEADS = pytest.mark.parametrize(
    "settings",
    [
        {"standardise": True, "rounds": 3},
        {"rounds": 2, "temperature": 0.02, "gain_tanh": False},
        pytest.param({}, marks=SLOW),
        pytest.param({"learn_temperature": True, "vote_layernorm": False}, marks=SLOW),
        pytest.param({"dustbin": "scalar", "vote": False}, marks=SLOW),
        pytest.param({"projection": False, "dim": 12}, marks=SLOW),
    ],
    ids=str,
)


@FORMS
@HEADS
def test_graphs_score_as_the_library_does(form: str, settings: dict[str, Any], tmp_path: Path) -> None:
    check(form, small_elvis(**settings), tmp_path)


@SLOW
@FORMS
def test_a_head_of_real_size(form: str, tmp_path: Path) -> None:
    check(form, small_elvis(input_dim=768, dim=128), tmp_path, places=600)


def test_padding_and_card(tmp_path: Path) -> None:
    head = small_elvis(rounds=2, extraction={"backbone": "tiny"})
    graphs = exported("torch", head, tmp_path)
    query, gallery = masked(1, PLACES, 12, seed=1), masked(3, PLACES, 12, seed=2)
    before = run(graphs, query, gallery)
    for pictures in (query, gallery):
        pictures.vectors[~pictures.mask] = 1e30
    assert torch.equal(run(graphs, query, gallery), before)
    extra = {"elvis.json": ""}
    torch.export.load(tmp_path / "score.pt2", extra_files=extra)
    card = json.loads(extra["elvis.json"])
    assert card["elvis.fingerprint"] == head.fingerprint
    assert card["elvis.descriptors"] == str(PLACES)
    assert json.loads(card["elvis.extraction"]) == {"backbone": "tiny"}


def test_metadata_and_free_dimension_of_onnx(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="the extra `onnx` is not installed")
    head = small_elvis(rounds=1)
    files = export.export_onnx(head, tmp_path)
    graphs = {name: onnx.load(path) for name, path in files.items()}
    for graph in graphs.values():
        onnx.checker.check_model(graph)
        assert {entry.key: entry.value for entry in graph.metadata_props}["elvis.fingerprint"] == head.fingerprint
    shapes = {
        each.name: [dim.dim_param or dim.dim_value for dim in each.type.tensor_type.shape.dim]
        for each in graphs["score"].graph.input
    }
    assert shapes["query"] == [1, head.config.descriptors, 8]
    assert shapes["gallery"] == ["pictures", head.config.descriptors, 8]
    assert shapes["gallery_mask"] == ["pictures", head.config.descriptors]


def test_scalings_only_where_they_hold_for_every_input() -> None:
    from elvis.transport import reference, scaling

    def form(**settings: Any) -> object:
        return export._graphs(small_elvis(**settings), 3)["score"].module.sinkhorn

    assert form() is scaling.sinkhorn
    assert form(dustbin="scalar") is scaling.sinkhorn
    assert form(temperature=0.03) is reference.sinkhorn
    assert form(gain_tanh=False) is reference.sinkhorn
    far = small_elvis(dustbin="scalar")
    far.gain_function.data.fill_(3.1)
    assert export._graphs(far, 3)["score"].module.sinkhorn is reference.sinkhorn


def test_the_head_stays_as_it_was(tmp_path: Path) -> None:
    head = small_elvis(rounds=1).double().train()
    before = head.fingerprint
    export.export_program(head, tmp_path, descriptors=2)
    assert head.training
    assert all(p.requires_grad and p.dtype == torch.float64 for p in head.parameters())
    assert head.fingerprint == before


@pytest.mark.parametrize("write", [export.export_onnx, export.export_program])
def test_bad_arguments_are_named(write: Callable[..., object], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected one with dust-bins"):
        write(small_elvis(dustbin="none"), tmp_path)
    with pytest.raises(ValueError, match="descriptors: expected at least 1, got 0"):
        write(small_elvis(), tmp_path, descriptors=0)
    with pytest.raises(TypeError, match="head: expected an Elvis head, got Chamfer"):
        write(Chamfer(), tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="expected a folder to write to, got a file"):
        write(small_elvis(), tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"elvis-retrieval\[onnx\]"):
        export.export_onnx(small_elvis(), tmp_path)


class TestCommand:
    def ended(self, monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
        monkeypatch.setattr("sys.argv", ["elvis", "export", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0)

    def test_writes_graphs(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        head = small_elvis(rounds=1)
        head.save_pretrained(tmp_path / "head")
        words = (tmp_path / "head", tmp_path / "out", "--format", "torch", "--descriptors", PLACES)
        assert self.ended(monkeypatch, *words) == 0
        assert capsys.readouterr().out.count("\n") == 2
        found = torch_graph(tmp_path / "out" / "prepare.pt2")(
            {"vectors": torch.ones(2, PLACES, 12), "mask": torch.ones(2, PLACES, dtype=torch.bool)}
        )
        assert found[0].shape == (2, PLACES, 8)
        assert np.isfinite(found[0].numpy()).all()

    def test_errors_are_one_line_with_a_code(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        small_elvis(rounds=1).save_pretrained(tmp_path / "head")
        assert self.ended(monkeypatch, tmp_path / "head", tmp_path / "out", "--format", "tflite") == 2
        assert "unknown format 'tflite': choose one of onnx, torch" in capsys.readouterr().err
        assert self.ended(monkeypatch, tmp_path / "absent", tmp_path / "out") == 4
        assert self.ended(monkeypatch, tmp_path / "head", tmp_path / "head" / "config.json") == 2
        assert "expected a folder to write to, got a file" in capsys.readouterr().err
        assert not (tmp_path / "out").exists()
