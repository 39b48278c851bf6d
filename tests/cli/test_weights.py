from pathlib import Path

import pytest
import torch

from elvis import load_model
from elvis.cli import main


def run(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr("sys.argv", ["elvis", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_convert_writes_a_head_that_loads(
    monkeypatch: pytest.MonkeyPatch, oracles: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert run(monkeypatch, "weights", "convert", oracles / "elvis.safetensors", tmp_path / "head") == 0
    assert "D' = 48, D = 128" in capsys.readouterr().out
    assert load_model("elvis", tmp_path / "head").config.input_dim == 48


def test_errors_are_one_line_with_a_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert run(monkeypatch, "weights", "convert", tmp_path / "absent.pt", tmp_path / "out") == 4
    assert capsys.readouterr().err.strip() == f"elvis: {tmp_path / 'absent.pt'}: no such file"
    torch.save({}, tmp_path / "x.pt")
    assert run(monkeypatch, "weights", "convert", tmp_path / "x.pt", tmp_path / "out", "--method", "elf") == 2
    assert "unknown method 'elf': choose one of" in capsys.readouterr().err
    assert run(monkeypatch, "weights", "convert", tmp_path / "x.pt", tmp_path / "out") == 4
    assert capsys.readouterr().err.count("\n") == 1
