"""Published pickles are read, and nothing that a pickle may ask for is run."""

import collections
import io
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from elvis.errors import DataSetError
from elvis.importing.pickles import read_plain_pickle

FORMATS = Path(__file__).parents[2] / ".." / "shared" / "oracles" / "formats"


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "value",
    [
        np.arange(12, dtype=np.float32).reshape(3, 4),
        np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        np.array(["a", "bc"]),
        torch.arange(6, dtype=torch.float32).reshape(2, 3),
        torch.arange(6, dtype=torch.int64).reshape(2, 3).T,
        torch.ones(2, 2, dtype=torch.float16),
    ],
    ids=lambda value: f"{type(value).__name__}-{value.dtype}-{tuple(value.shape)}",
)
def test_arrays_and_tensors(tmp_path, value, protocol):
    (tmp_path / "x.pkl").write_bytes(pickle.dumps(value, protocol))
    found = read_plain_pickle(tmp_path / "x.pkl")
    assert type(found) is type(value)
    np.testing.assert_array_equal(np.asarray(found), np.asarray(value))


def test_plain_containers(tmp_path):
    value = {"gnd": [{"ok": [1, 2], "bbx": [0.5, 1]}], "scores": np.float64(3), "order": collections.OrderedDict(a=1)}
    (tmp_path / "x.pkl").write_bytes(pickle.dumps(value))
    assert read_plain_pickle(tmp_path / "x.pkl") == value


def test_the_published_neighbours():
    if not FORMATS.is_dir():
        pytest.skip("no published files beside the checkout")
    found = read_plain_pickle(FORMATS / "nn_dinov2.pkl")
    assert found.shape == (2, 4, 3)
    assert found[1].tolist() == [[2, 3, 1], [3, 0, 2], [0, 3, 1], [1, 0, 2]]


class Calls:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    "what", [Calls(print, "run"), Calls(eval, "print('run')"), Calls(io.open, "/etc/passwd"), Path()]
)
def test_what_asks_for_more_is_refused_before_it_runs(tmp_path, capsys, what):
    (tmp_path / "x.pkl").write_bytes(pickle.dumps({"a": what}))
    with pytest.raises(DataSetError, match=r"x.pkl is refused or damaged: it asks for \w+\.\w+"):
        read_plain_pickle(tmp_path / "x.pkl")
    assert capsys.readouterr().out == ""


def test_a_tensors_storage_cannot_hide_a_call(tmp_path, capsys):
    inner = io.BytesIO()
    torch.save(Calls(print, "run"), inner, _use_new_zipfile_serialization=False)
    outer = Calls(torch.storage._load_from_bytes, inner.getvalue())
    (tmp_path / "x.pkl").write_bytes(pickle.dumps(outer))
    with pytest.raises(DataSetError, match="refused or damaged"):
        read_plain_pickle(tmp_path / "x.pkl")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("content", [b"", b"text", b"\x80\x04", pickle.dumps(np.ones(50))[:60]])
def test_what_is_no_pickle_is_one_line(tmp_path, content):
    (tmp_path / "x.pkl").write_bytes(content)
    with pytest.raises(DataSetError, match=r"x.pkl is (no pickle, or is cut short|refused or damaged)") as caught:
        read_plain_pickle(tmp_path / "x.pkl")
    assert "\n" not in str(caught.value)
    with pytest.raises(DataSetError, match="cannot be read: No such file"):
        read_plain_pickle(tmp_path / "no.pkl")
