"""Published checkpoints under our names; files from strangers."""

import os
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from elvis.errors import WeightsError
from elvis.models import Elvis, ElvisConfig
from elvis.models.published import PUBLISHED_NAMES, convert_elvis


@pytest.fixture
def state(oracles: Path) -> dict[str, torch.Tensor]:
    return load_file(oracles / "elvis.safetensors")


def published_state(config: ElvisConfig) -> dict[str, torch.Tensor]:
    """Random parameters of our head under the published names."""
    back = {ours: theirs for theirs, ours in PUBLISHED_NAMES.items()}
    names = {name: name.partition(".") for name in Elvis(config).state_dict()}
    return {back[first] + dot + rest: Elvis(config).state_dict()[name] for name, (first, dot, rest) in names.items()}


@pytest.mark.parametrize("input_dim", [768, 1024, 1152])
@pytest.mark.parametrize("g", [True, False])
def test_sizes_are_read_from_the_weights(tmp_path: Path, input_dim: int, g: bool) -> None:
    state = published_state(ElvisConfig(input_dim=input_dim, dim=64, calibrate="sum" if g else "none"))
    torch.save({"state": state, "optim": {"lr": 1e-3}, "epoch": 9}, tmp_path / "published.pt")
    head = convert_elvis(tmp_path / "published.pt")
    assert (head.config.input_dim, head.config.dim) == (input_dim, 64)
    assert head.config.calibrate == ("sum" if g else "none")
    assert head.config.vote_layernorm
    assert head.config.gain_tanh
    assert torch.equal(head.state_dict()["projection.0.weight"], state["remap_local.0.weight"])
    assert torch.equal(head.state_dict()["corner"], state["dust_bin"])


def test_a_module_prefix_and_a_bare_state_are_taken(tmp_path: Path, state: dict[str, torch.Tensor]) -> None:
    torch.save({f"module.{name}": value.half() for name, value in state.items()}, tmp_path / "bare.pt")
    head = convert_elvis(tmp_path / "bare.pt")
    assert head.state_dict()["vote_function.0.weight"].dtype == torch.float32


def test_f_without_a_norm_is_recognised(tmp_path: Path) -> None:
    state = published_state(ElvisConfig(input_dim=8, dim=4, vote_layernorm=False))
    save_file(state, tmp_path / "plain.safetensors")
    assert not convert_elvis(tmp_path / "plain.safetensors").config.vote_layernorm


class Evil:
    """Runs a command when unpickled by a loader that allows it."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple:
        return os.system, (f"touch {self.mark}",)


def test_a_file_that_asks_for_more_than_tensors_is_refused(tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    torch.save({"state": Evil(mark)}, tmp_path / "evil.pt")
    with pytest.raises(WeightsError, match="is refused: it asks for more than tensors"):
        convert_elvis(tmp_path / "evil.pt")
    (tmp_path / "bare.pt").write_bytes(pickle.dumps(Evil(mark)))
    with pytest.raises(WeightsError, match="refused"):
        convert_elvis(tmp_path / "bare.pt")
    assert not mark.exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is no PyTorch checkpoint, or is cut short"),
        (b"PK\x03\x04 not really", "is no PyTorch checkpoint, or is cut short"),
        (b"hello, world", "is no PyTorch checkpoint|is refused"),
    ],
)
def test_garbage_is_named(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "x.pt").write_bytes(content)
    with pytest.raises(WeightsError, match=words):
        convert_elvis(tmp_path / "x.pt")


def test_what_is_not_a_head_is_named(tmp_path: Path, state: dict[str, torch.Tensor]) -> None:
    with pytest.raises(WeightsError, match="no such file"):
        convert_elvis(tmp_path / "absent.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(WeightsError, match="holds a list"):
        convert_elvis(tmp_path / "list.pt")
    torch.save({"state": {"a": 3}}, tmp_path / "number.pt")
    with pytest.raises(WeightsError, match="a is no tensor"):
        convert_elvis(tmp_path / "number.pt")
    torch.save({name: value for name, value in state.items() if name != "dust_bin"}, tmp_path / "cut.pt")
    with pytest.raises(WeightsError, match="dust_bin is missing"):
        convert_elvis(tmp_path / "cut.pt")
    torch.save({**state, "surplus": torch.ones(1)}, tmp_path / "more.pt")
    with pytest.raises(WeightsError, match="surplus"):
        convert_elvis(tmp_path / "more.pt")
    torch.save({"remap_local.0.W": torch.ones(768, 128)}, tmp_path / "binary.pt")
    with pytest.raises(WeightsError, match="binarised"):
        convert_elvis(tmp_path / "binary.pt")
    (tmp_path / "x.safetensors").write_bytes(b"12345678")
    with pytest.raises(WeightsError, match="is no safetensors file"):
        convert_elvis(tmp_path / "x.safetensors")
