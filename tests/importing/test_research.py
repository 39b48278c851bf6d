"""Published training files, on small ones in exactly that layout."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from elvis.errors import DataSetError, MissingExtra, TrainingError
from elvis.importing import research
from elvis.importing.research import LocalDescriptors, is_research_folder, read_research_folder, read_train_list
from elvis.training.loop import train
from elvis.training.research import research_examples
from training_examples import tiny_config, toy_examples

h5py = pytest.importorskip("h5py", reason="the extra `research` is not installed")
FORMATS = Path(__file__).parents[2] / ".." / "shared" / "oracles" / "formats"
ROWS = 20  # the published files have 700


def write_hdf5(file, values):
    with h5py.File(file, "w") as opened:
        opened["features"] = values


def write_set(folder, *, dtype=np.float16, neighbours="tensor", padded=3):
    """The toy pictures as the published code would have stored them."""
    examples = toy_examples(views=0)
    folder.mkdir(exist_ok=True)
    lines, table = [], []
    for picture, row in enumerate(examples.views[:, 0]):
        vectors = examples.rows.vectors(row).astype(np.float32)
        kept = len(vectors) - (padded if picture % 2 else 0)
        features = np.zeros((ROWS, 5 + vectors.shape[1]), np.float32)
        features[:, 3] = 1
        features[:kept, :5] = [0.25, 0.75, 0, 0, 1]
        features[:kept, 5:] = vectors[:kept]
        table.append(features)
        name = f"{picture:016x}"
        # Landmark numbers are not contiguous, and not in the order of the lines.
        lines.append(f"train/{name[0]}/{name[1]}/{name[2]}/{name}.jpg,{900 - 7 * examples.labels[picture]},640,480")
    (folder / "train.txt").write_text("\n".join(lines) + "\n")
    write_hdf5(folder / "dinov2_local.hdf5", np.array(table, dtype))
    planes = np.stack([examples.neighbours.similarities, examples.neighbours.ids.astype(np.float32)])
    if neighbours == "tensor":
        (folder / "nn_dinov2.pkl").write_bytes(pickle.dumps(torch.tensor(planes)))
    elif neighbours == "array":
        (folder / "nn_dinov2.pkl").write_bytes(pickle.dumps(planes))
    return examples


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("neighbours", ["tensor", "array"])
def test_a_published_set_is_read(tmp_path, dtype, neighbours):
    examples = write_set(tmp_path / "gldv2", dtype=dtype, neighbours=neighbours)
    assert is_research_folder(tmp_path / "gldv2")
    files = read_research_folder(tmp_path / "gldv2")
    assert files.labels[0] == "900"
    assert files.paths[1].endswith("1.jpg")
    assert len(files.local) == 60
    assert files.local.dim == 16
    assert files.local.vectors(0).shape == (14, 16)
    assert files.local.vectors(1).shape == (11, 16)  # without padding
    assert files.local.vectors(1).dtype == dtype
    np.testing.assert_allclose(files.local.xy(0)[0], [0.75, 0.25])
    np.testing.assert_array_equal(files.neighbours, examples.neighbours.ids)
    found, notes = research_examples(files, tiny_config(), "gldv2")
    assert notes == []
    same = found.labels[:, None] == found.labels[None]
    np.testing.assert_array_equal(same, examples.labels[:, None] == examples.labels[None])


def test_it_is_trained_on(tmp_path):
    write_set(tmp_path)
    config = tiny_config(steps=40, descriptor_choice="strongest")
    examples, _ = research_examples(read_research_folder(tmp_path), config, "gldv2")
    trained = train(examples, config)
    assert max(found for _, found in trained.validations[1:]) > trained.validations[0][1]
    with pytest.raises(ValueError, match="published files hold no augmented views"):
        research_examples(read_research_folder(tmp_path), tiny_config(augmented_share=0.5, views=1), "gldv2")


def test_neighbours_are_computed_where_they_are_missing(tmp_path):
    write_set(tmp_path, neighbours="none")
    with pytest.raises(DataSetError, match="expected nn_dinov2.pkl, or global vectors in dinov2_cls.hdf5"):
        read_research_folder(tmp_path)
    vectors = np.random.default_rng(0).standard_normal((60, 4)).astype(np.float16)
    write_hdf5(tmp_path / "dinov2_train_cls.hdf5", vectors)
    files = read_research_folder(tmp_path, neighbours=7)
    unit = vectors.astype(np.float32) / np.linalg.norm(vectors.astype(np.float32), axis=1, keepdims=True)
    cosines = unit @ unit.T - 2 * np.eye(60)
    assert files.neighbours.shape == (60, 7)
    np.testing.assert_allclose(files.similarities, np.sort(cosines, axis=1)[:, :-8:-1], atol=1e-5)


def test_an_image_among_its_own_neighbours_is_never_drawn(tmp_path):
    write_set(tmp_path, neighbours="none")
    ids = np.argsort(np.random.default_rng(0).random((60, 60)), axis=1)
    planes = np.stack([np.full((60, 60), 0.5, np.float32), ids.astype(np.float32)])
    (tmp_path / "nn_dinov2.pkl").write_bytes(pickle.dumps(planes))
    files = read_research_folder(tmp_path)
    itself = ids == np.arange(60)[:, None]
    assert (files.neighbours[itself] == -1).all()
    assert (files.similarities[itself] == 0).all()
    assert (files.neighbours[~itself] == ids[~itself]).all()


def test_the_published_writers_file():
    if not FORMATS.is_dir():
        pytest.skip("no published files beside the checkout")
    local = LocalDescriptors(FORMATS / "dinov2_gallery_local.hdf5")
    assert (len(local), local.dim) == (4, 48)
    assert [len(local.vectors(row)) for row in range(4)] == [20, 15, 20, 15]
    raw = h5py.File(FORMATS / "dinov2_gallery_local.hdf5")["features"][1]
    np.testing.assert_array_equal(local.vectors(1), raw[:15, 5:])
    np.testing.assert_array_equal(local.xy(1), raw[:15, [1, 0]])


def test_the_list_with_and_without_sizes(tmp_path):
    file = tmp_path / "train.txt"
    file.write_text("train/a.jpg,5,640,480\ntrain/b.jpg,3\n")
    assert read_train_list(file) == (["train/a.jpg", "train/b.jpg"], ["5", "3"])
    for text, message in (("a.jpg\n", "line 1: expected path,label"), ("", "is empty"), ("a,1\n,2\n", "line 2")):
        file.write_text(text)
        with pytest.raises(DataSetError, match=message):
            read_train_list(file)


def test_files_that_do_not_belong_together_are_refused(tmp_path):
    write_set(tmp_path)
    good = {file.name: file.read_bytes() for file in tmp_path.iterdir()}

    def refused(message):
        with pytest.raises(DataSetError, match=message):
            read_research_folder(tmp_path)
        for name, content in good.items():
            (tmp_path / name).write_bytes(content)

    (tmp_path / "train.txt").write_text("a.jpg,1\n")
    refused("dinov2_local.hdf5 has 60 rows, and train.txt has 1 lines")
    (tmp_path / "train.txt").unlink()
    refused("expected an image list")
    (tmp_path / "nn_dinov2.pkl").write_bytes(pickle.dumps(np.zeros((2, 5, 3), np.float32)))
    refused(r"expected neighbours \[2, 60, K\], got \(2, 5, 3\)")
    (tmp_path / "nn_dinov2.pkl").write_bytes(pickle.dumps(np.full((2, 60, 3), 99, np.float32)))
    refused("expected rows from 0 to 59, got 99 to 99")
    write_hdf5(tmp_path / "dinov2_local.hdf5", np.zeros((60, 8), np.float32))
    refused(r"expected features \[N, M, 5 \+ D\]")
    (tmp_path / "dinov2_local.hdf5").write_bytes(b"no HDF5")
    refused("is no HDF5 file, or is cut short")
    write_hdf5(tmp_path / "siglip2_local.hdf5", np.zeros((60, 8, 9), np.float32))
    refused("expected descriptors of one kind .NAME_local.hdf5., found dinov2, siglip2")
    (tmp_path / "siglip2_local.hdf5").unlink()
    padded = np.zeros((60, ROWS, 21), np.float32)
    padded[:, :, 3] = 1
    write_hdf5(tmp_path / "dinov2_local.hdf5", padded)
    with pytest.raises(DataSetError, match="image 4 has no descriptor that is not padding"):
        read_research_folder(tmp_path).local.vectors(4)


def test_too_little_is_said(tmp_path):
    write_set(tmp_path)
    lines = (tmp_path / "train.txt").read_text().splitlines()
    (tmp_path / "train.txt").write_text("".join(line.split(",")[0] + ",5\n" for line in lines))
    with pytest.raises(TrainingError, match="gldv2: all 60 pictures show one object, '5'"):
        research_examples(read_research_folder(tmp_path), tiny_config(), "gldv2")


def test_missing_h5py_is_one_line(tmp_path, monkeypatch):
    import builtins

    write_set(tmp_path)
    real = builtins.__import__

    def without(name, *rest):
        if name == "h5py":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"this needs h5py: pip install 'elvis-retrieval\[research\]'"):
        research.LocalDescriptors(tmp_path / "dinov2_local.hdf5")
