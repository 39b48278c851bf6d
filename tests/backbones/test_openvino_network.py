import json
import logging
import os
import shutil
import subprocess
import sys
import threading

import pytest
import torch

from elvis.backbones import load_backbone, resolve_engine
from elvis.backbones.checkpoint import checkpoint_sha256
from elvis.backbones.openvino_network import OpenVinoNetwork, default_cache_folder
from elvis.errors import MissingExtra, UnknownName

pytest.importorskip("openvino", reason="the extra openvino is not installed")

FAMILIES = ["dinov2", "dinov2_with_registers", "dinov3_vit", "siglip", "siglip_vision_model"]


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory):
    """One cache for this file, so that each network is translated once."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME", str(folder))
        yield default_cache_folder()


def pixels(batch, rows, columns, patch):
    generator = torch.Generator().manual_seed(rows * columns)
    return torch.rand(batch, 3, rows * patch, columns * patch, generator=generator)


def assert_close(found, expected, tolerance=1e-4):
    for name in ("grid", "attention", "image_vector"):
        assert torch.allclose(getattr(found, name), getattr(expected, name), atol=tolerance), name


@pytest.mark.parametrize(
    ("family", "block"),
    [("dinov2", -2), *(pytest.param(name, -2, marks=pytest.mark.slow) for name in FAMILIES[1:])]
    + [pytest.param(name, -1, marks=pytest.mark.slow) for name in FAMILIES],
)
def test_every_size_and_batch_equals_torch(tiny_checkpoint, family, block):
    folder = tiny_checkpoint(family)
    plain = load_backbone(folder, block=block, precision="fp32", engine="torch")
    fast = load_backbone(folder, block=block, precision="fp32", engine="openvino")
    assert (fast.engine, plain.engine) == ("openvino", "torch")
    assert (fast.dim, fast.patch, fast.dtype, fast.sha256) == (plain.dim, plain.patch, torch.float32, plain.sha256)
    # 4 x 4 is the size of the position table itself.
    for batch, rows, columns in [(1, 3, 5), (3, 3, 5), (1, 4, 4), (2, 7, 2), (1, 1, 1), (1, 3, 5)]:
        images = pixels(batch, rows, columns, plain.patch)
        assert_close(fast(images), plain(images))


def test_bf16_stays_close(tiny_checkpoint):
    exact = load_backbone(tiny_checkpoint("dinov2"), block=-2, precision="fp32", engine="torch")
    half = load_backbone(tiny_checkpoint("dinov2"), block=-2, precision="bf16", engine="openvino")
    assert half.dtype in (torch.bfloat16, torch.float32)  # what it says is what the processor can do
    found, expected = half(pixels(1, 3, 5, 14)), exact(pixels(1, 3, 5, 14))
    assert torch.nn.functional.cosine_similarity(found.grid, expected.grid, dim=-1).min() > 0.99
    assert found.grid.dtype == torch.float32


def test_an_answer_is_not_overwritten_by_the_next(tiny_checkpoint):
    fast = load_backbone(tiny_checkpoint("dinov2"), block=-2, precision="fp32", engine="openvino")
    first = fast(pixels(1, 3, 5, 14))
    kept = first.grid.clone()
    fast(1 - pixels(1, 3, 5, 14))
    assert torch.equal(first.grid, kept)


def test_threads_may_share_it(tiny_checkpoint):
    fast = load_backbone(tiny_checkpoint("dinov2"), block=-2, precision="fp32", engine="openvino")
    sizes = [(rows, columns) for rows in range(1, 5) for columns in range(1, 5)]
    alone = [fast(pixels(1, *size, 14)) for size in sizes]
    found = {}

    def work(size):
        found[size] = fast(pixels(1, *size, 14))

    workers = [threading.Thread(target=work, args=(size,)) for size in sizes]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for size, expected in zip(sizes, alone, strict=True):
        assert_close(found[size], expected, 1e-6)


def test_nothing_is_reported_and_a_kept_translation_needs_no_transformers(tiny_checkpoint, tmp_path):
    script = f"""
import sys, torch
from elvis.backbones import load_backbone
load_backbone({str(tiny_checkpoint("dinov2"))!r}, block=-2, engine="openvino")(torch.zeros(1, 3, 28, 42))
print(sorted({{"transformers", "openvino_telemetry"}} & set(sys.modules)))
"""
    # OpenVINO notes an identity in the home folder before it reports.
    homeless = {**os.environ, "HOME": str(tmp_path), "USERPROFILE": str(tmp_path)}
    homeless |= {"XDG_CACHE_HOME": str(tmp_path / "cache"), "LOCALAPPDATA": str(tmp_path / "cache")}
    printed = []
    for _ in range(2):
        ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=homeless)
        printed.append(ended.stdout.strip())
    assert printed == ["['transformers']", "[]"]
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


@pytest.mark.skipif(sys.platform == "win32", reason="no such signals")
def test_control_c_is_survived_when_several_have_come_and_gone(tiny_checkpoint):
    script = f"""
import os, signal, torch
from elvis.backbones import load_backbone
def load():
    return load_backbone({str(tiny_checkpoint("dinov2"))!r}, block=-2, engine="openvino")
one, two = load(), load()
del one
three = load()
del two, three
signal.signal(signal.SIGINT, lambda *_: print("heard"))
os.kill(os.getpid(), signal.SIGINT)
"""
    ended = subprocess.run([sys.executable, "-X", "faulthandler", "-c", script], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout.strip()) == (0, "heard"), ended.stderr


def test_what_is_damaged_is_made_anew(tiny_checkpoint, tmp_path, caplog):
    folder = tiny_checkpoint("dinov2")
    sha256 = checkpoint_sha256(folder)

    def network(block=-2):
        return OpenVinoNetwork(folder, sha256, "dinov2", block, torch.float32, tmp_path)

    images = pixels(1, 3, 5, 14)
    expected = network()(images).tokens
    (place,) = tmp_path.iterdir()
    (tmp_path / f"{sha256[:16]}-block-2-0123").mkdir()
    for file in ("model.bin", "model.xml", "card.json"):
        content = bytearray((place / file).read_bytes())
        content[len(content) // 2] ^= 1
        (place / file).write_bytes(content)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert torch.equal(network()(images).tokens, expected)
        assert "damaged" in caplog.text
        assert list(tmp_path.iterdir()) == [place]
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        network()
    assert not caplog.records
    with pytest.raises(ValueError, match="block: expected -1 .* to -3 .*, got -4"):
        network(-4)
    assert json.loads((place / "card.json").read_text())["facts"]["dim"] == 32


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="folders are writable for this user")
def test_a_cache_that_cannot_be_written_costs_time_only(tiny_checkpoint, tmp_path, caplog):
    tmp_path.chmod(0o500)
    folder = tiny_checkpoint("dinov2")
    network = OpenVinoNetwork(folder, checkpoint_sha256(folder), "dinov2", -2, torch.float32, tmp_path / "cache")
    assert network.facts.dim == 32
    assert "cannot be kept" in caplog.text


def test_a_cache_in_the_place_of_a_file_costs_time_only(tiny_checkpoint, tmp_path, caplog):
    (tmp_path / "cache").write_text("in the way")
    folder = tiny_checkpoint("dinov2")
    network = OpenVinoNetwork(folder, checkpoint_sha256(folder), "dinov2", -2, torch.float32, tmp_path / "cache")
    assert network.facts.dim == 32
    assert "cannot be kept" in caplog.text


def test_the_engine_is_chosen_by_what_is_there(monkeypatch):
    assert resolve_engine("auto", "cpu", "auto") == "openvino"
    assert resolve_engine("auto", "cpu", "fp16") == resolve_engine("auto", "cuda", "bf16") == "torch"
    with pytest.raises(ValueError, match="openvino runs on a CPU in bf16 or fp32, asked for is cuda and bf16"):
        resolve_engine("openvino", "cuda", "bf16")
    with pytest.raises(UnknownName, match="unknown engine 'onnx'"):
        resolve_engine("onnx", "cpu", "auto")
    monkeypatch.setattr("elvis.backbones.network.find_spec", lambda name: None)
    assert resolve_engine("auto", "cpu", "auto") == "torch"
    with pytest.raises(MissingExtra, match=r"pip install 'elvis-retrieval\[openvino\]'"):
        resolve_engine("openvino", "cpu", "auto")


def test_what_is_moved_is_not_translated_again(tiny_checkpoint, tmp_path, cache):
    folder = tiny_checkpoint("dinov2")
    load_backbone(folder, block=-2, engine="openvino")
    before = sorted(cache.iterdir())
    load_backbone(shutil.copytree(folder, tmp_path / "moved"), block=-2, engine="openvino")
    assert sorted(cache.iterdir()) == before
