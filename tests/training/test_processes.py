"""Kill -9 in mid-training, and several processes: the weights are those of one undisturbed process."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from elvis.training.journal import read_journal
from elvis.training.processes import Processes, own_device
from training_examples import same_weights

PROCESS = Path(__file__).with_name("training_process.py")


def start(folder, *words, **environment):
    return subprocess.Popen(
        [sys.executable, str(PROCESS), str(folder), *words],
        env={**os.environ, **environment},
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    _, err = process.communicate(timeout=180)
    assert process.returncode == 0, err


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    finish(start(folder))
    return folder


def kill_at(folder, step, *words):
    process = start(folder, *words, PAUSE="0.02")
    deadline = time.monotonic() + 120
    while not (folder / "step").exists() or int((folder / "step").read_text() or 0) < step:
        assert time.monotonic() < deadline, "the run did not get so far"
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (folder / "result0.pt").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is a matter of POSIX")
@pytest.mark.parametrize("steps", [pytest.param((6, 15), id="twice"), pytest.param((9,), marks=pytest.mark.slow)])
def test_a_killed_run_ends_with_the_same_bits(undisturbed, tmp_path, steps):
    folder = tmp_path / "run"
    for number, step in enumerate(steps):
        kill_at(folder, step, *(["--resume"] if number else []))
    finish(start(folder, "--resume"))
    expected, found = (torch.load(each / "result0.pt") for each in (undisturbed, folder))
    for which in ("last", "best"):
        assert same_weights(found[which], expected[which])
    assert read_journal(folder) == read_journal(undisturbed)


@pytest.mark.parametrize("world", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_several_processes_train_as_one(undisturbed, tmp_path, world):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    folder = tmp_path / "run"
    together = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    running = [start(folder, RANK=str(rank), **together) for rank in range(world)]
    for process in running:
        finish(process)
    results = [torch.load(folder / f"result{rank}.pt") for rank in range(world)]
    for other in results[1:]:
        assert same_weights(results[0]["last"], other["last"])
    expected = torch.load(undisturbed / "result0.pt")["last"]
    for name, value in results[0]["last"].items():
        if name == "calibration.bias":  # a softmax does not see it: its gradient is rounding alone
            continue
        torch.testing.assert_close(value, expected[name], rtol=2e-3, atol=2e-4, msg=name)
    for one, many in zip(read_journal(undisturbed), read_journal(folder), strict=True):
        assert one.keys() == many.keys()
        if "loss" in one:
            assert one["loss"] == pytest.approx(many["loss"], rel=1e-3)
    first, same = read_journal(undisturbed)[1], read_journal(folder)[1]
    # Before any weight has changed, loss and gradient agree to rounding.
    assert first["step"] == 1
    assert first["loss"] == pytest.approx(same["loss"], rel=1e-6)
    assert first["gradient"] == pytest.approx(same["gradient"], rel=1e-4)


def test_alone_nothing_is_exchanged():
    alone = Processes()
    tensor = torch.ones(2)
    alone.add_up([tensor])
    assert tensor.tolist() == [1, 1]
    assert alone.first
    assert alone.first_says(lambda: 5) == 5


def test_each_process_takes_its_own_gpu(monkeypatch):
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert own_device("cuda") == "cuda"
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert (own_device("cuda"), own_device("cpu"), own_device("cuda:1")) == ("cuda:3", "cpu", "cuda:1")
