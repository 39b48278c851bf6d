"""The feature store: what is added is read again, exactly, and damage is noticed."""

import json
import os
import time

import numpy as np
import pytest
import torch

from elvis import Descriptors
from elvis.errors import CacheError
from elvis.training import features
from elvis.training.features import FeatureStore

FINGERPRINT = "0123456789abcdef0123456789abcdef"


def one_picture(seed, count=7, dim=5):
    generator = torch.Generator().manual_seed(seed)
    return Descriptors(
        torch.randn(1, count, dim, generator=generator),
        xy=torch.rand(1, count, 2, generator=generator),
        image_vector=torch.randn(1, 4, generator=generator),
    )


def filled(folder, keys=("a", "b", "c")):
    store = FeatureStore(folder, FINGERPRINT, {"block": -2})
    for number, key in enumerate(keys):
        store.add(key, one_picture(number, count=4 + number))
    store.flush()
    return store


def test_rows_come_back_as_they_went_in_also_for_the_next_run(tmp_path):
    for store in (filled(tmp_path), FeatureStore(tmp_path, FINGERPRINT, {"block": -2})):
        assert (len(store), store.dim) == (3, 5)
        for number, key in enumerate("abc"):
            row = store.row(key)
            expected = one_picture(number, count=4 + number)
            assert store.vectors(row).dtype == np.float16
            np.testing.assert_array_equal(store.vectors(row), expected.vectors[0].half().numpy())
            np.testing.assert_array_equal(store.xy(row), expected.xy[0].numpy())
            unit = torch.nn.functional.normalize(expected.image_vector, dim=1)
            np.testing.assert_array_equal(store.image_vectors([row]), unit.numpy())
        assert "a" in store
        assert "z" not in store


def test_rows_are_views_of_the_file(tmp_path):
    vectors = filled(tmp_path).vectors(1)
    while vectors.base is not None and not isinstance(vectors, np.memmap):
        vectors = vectors.base
    assert isinstance(vectors, np.memmap)


def test_numbers_too_large_for_half_precision_stay_whole(tmp_path):
    store = FeatureStore(tmp_path, FINGERPRINT, {})
    big = Descriptors(torch.full((1, 2, 3), 1e5), image_vector=torch.ones(1, 4))
    store.add("big", big)
    store.flush()
    np.testing.assert_array_equal(store.vectors(0), np.full((2, 3), 1e5, np.float32))
    assert np.isnan(store.xy(0)).all()


def test_padding_is_not_kept(tmp_path):
    store = FeatureStore(tmp_path, FINGERPRINT, {})
    store.add("a", Descriptors(torch.ones(1, 4, 3), torch.arange(4)[None] < 2, image_vector=torch.ones(1, 2)))
    store.flush()
    assert store.vectors(0).shape == (2, 3)


def test_a_shard_is_written_when_it_is_full(tmp_path, monkeypatch):
    monkeypatch.setattr(features, "SHARD_BYTES", 100)
    monkeypatch.setattr(features, "_OPEN_SHARDS", 2)
    store = FeatureStore(tmp_path, FINGERPRINT, {})
    for number in range(6):
        store.add(str(number), one_picture(number))  # 70 bytes each
    assert len(store) == 6
    assert len(list(store.folder.glob("*.safetensors"))) == 3
    for number in (0, 5, 2, 3, 1):
        expected = one_picture(number).vectors[0].half().numpy()
        np.testing.assert_array_equal(store.vectors(store.row(str(number))), expected)


def test_two_runs_may_add_at_a_time(tmp_path):
    one, other = (FeatureStore(tmp_path, FINGERPRINT, {}) for _ in range(2))
    one.add("a", one_picture(0))
    other.add("a", one_picture(0))
    other.add("b", one_picture(1))
    one.flush()
    other.flush()
    third = FeatureStore(tmp_path, FINGERPRINT, {})
    assert len(third) == 3
    np.testing.assert_array_equal(third.vectors(third.row("b")), one_picture(1).vectors[0].half().numpy())


def test_what_was_not_flushed_is_not_there_and_leftovers_are_swept(tmp_path):
    store = FeatureStore(tmp_path, FINGERPRINT, {})
    store.add("a", one_picture(0))
    leftover = store.folder / ".x.safetensors.1.tmp"
    leftover.write_bytes(b"half a shard")
    os.utime(leftover, (time.time() - 7200,) * 2)
    assert len(FeatureStore(tmp_path, FINGERPRINT, {})) == 0
    assert not leftover.exists()


def test_damage_is_named(tmp_path):
    store = filled(tmp_path)
    (file,) = store.folder.glob("*.safetensors")
    content = bytearray(file.read_bytes())
    length = int.from_bytes(content[:8], "little")
    start = 8 + length + json.loads(content[8 : 8 + length])["vectors"]["data_offsets"][0]
    content[start] ^= 1
    file.write_bytes(content)
    again = FeatureStore(tmp_path, FINGERPRINT, {"block": -2})
    assert again.vectors(1).shape == (5, 5)  # the others are whole
    with pytest.raises(CacheError, match="checksum of row 0.*delete it and run again"):
        again.vectors(0)
    file.write_bytes(bytes(content[: len(content) // 2]))
    with pytest.raises(CacheError, match="damaged"):
        FeatureStore(tmp_path, FINGERPRINT, {"block": -2}).image_vectors([0])


def test_what_does_not_belong_is_refused(tmp_path):
    store = FeatureStore(tmp_path, FINGERPRINT, {})
    with pytest.raises(CacheError, match="holds no descriptors yet"):
        _ = store.dim
    with pytest.raises(ValueError, match="expected those of one picture, with its image_vector"):
        store.add("a", Descriptors(torch.ones(1, 2, 3)))
    with pytest.raises(CacheError, match="was made with fingerprint"):
        FeatureStore(tmp_path, FINGERPRINT[:16] + "f" * 16, {})
