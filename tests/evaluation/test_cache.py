"""Kept descriptors: whole or absent, never stale, never silently damaged."""

import json
import multiprocessing
import os
import signal
import sys
import time

import pytest
import torch

from elvis import Descriptors
from elvis.errors import CacheError
from elvis.evaluation.cache import DescriptorCache, default_cache_folder, write_atomically

PRINT = "a" * 64


def descriptors(**more):
    return Descriptors(
        torch.randn(1, 5, 8),
        xy=torch.rand(1, 5, 2),
        strength=torch.rand(1, 5),
        size=torch.tensor([[4000, 3000]]),
        image_vector=torch.randn(1, 4),
        **more,
    )


@pytest.fixture
def cache(tmp_path):
    return DescriptorCache(tmp_path, PRINT, {"block": -2})


def test_what_goes_in_comes_out(cache):
    kept = descriptors(mask=torch.tensor([[True, True, True, True, False]]))
    cache.write("k" * 64, kept)
    found = cache.read("k" * 64)
    torch.testing.assert_close(found.vectors, kept.vectors, rtol=1e-3, atol=1e-3)
    assert torch.equal(found.vectors.half(), kept.vectors.half())
    for name in ("mask", "xy", "strength", "size", "image_vector"):
        assert torch.equal(getattr(found, name), getattr(kept, name)), name
    assert torch.equal(cache.read_image_vector("k" * 64), kept.image_vector[0])


def test_numbers_beyond_half_precision_stay_whole(cache):
    cache.write("k" * 64, Descriptors(torch.full((1, 1, 2), 1e5)))
    assert cache.read("k" * 64).vectors.tolist() == [[[1e5, 1e5]]]


def test_content_crop_and_settings_make_the_place(cache, tmp_path):
    other = DescriptorCache(tmp_path, "b" * 64, {"block": -1})
    keys = {cache.key(b"x"), cache.key(b"y"), cache.key(b"x", (0, 0, 0.5, 1)), cache.key(b"x", (0, 0, 1, 0.5))}
    assert len(keys) == 4
    cache.write(cache.key(b"x"), descriptors())
    assert cache.key(b"x") in cache
    assert cache.key(b"x") not in other


def test_settings_of_another_fingerprint_are_refused(tmp_path):
    DescriptorCache(tmp_path, "a" * 16 + "1" * 48, {})
    with pytest.raises(CacheError, match="was made with fingerprint a+1+, and this run has a+2+"):
        DescriptorCache(tmp_path, "a" * 16 + "2" * 48, {})


def test_another_schema_is_refused(cache, tmp_path):
    card = cache.folder / "settings.json"
    card.write_text(json.dumps(json.loads(card.read_text()) | {"schema": 99}))
    with pytest.raises(CacheError, match="was made with schema 99, and this run has 1"):
        DescriptorCache(tmp_path, PRINT, {})


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "3"])
def test_a_damaged_card_is_refused(cache, tmp_path, content):
    (cache.folder / "settings.json").write_text(content)
    with pytest.raises(CacheError, match=r"settings.json is damaged: delete"):
        DescriptorCache(tmp_path, PRINT, {})


def the_file(cache):
    (file,) = cache.folder.glob("*/*.safetensors")
    return file


def test_every_flipped_byte_of_the_data_is_noticed(cache):
    cache.write("k" * 64, descriptors())
    file = the_file(cache)
    sound = file.read_bytes()
    start = 8 + int.from_bytes(sound[:8], "little")
    for place in range(start, len(sound)):
        file.write_bytes(sound[:place] + bytes([sound[place] ^ 1]) + sound[place + 1 :])
        with pytest.raises(CacheError, match="is damaged"):
            cache.read("k" * 64)
    file.write_bytes(sound)
    cache.read("k" * 64)


def test_every_truncation_is_noticed(cache):
    cache.write("k" * 64, descriptors())
    file = the_file(cache)
    sound = file.read_bytes()
    for length in range(0, len(sound), 7):
        file.write_bytes(sound[:length])
        with pytest.raises(CacheError, match="is damaged") as caught:
            cache.read("k" * 64)
        assert "\n" not in str(caught.value)


def test_a_file_of_another_picture_or_other_settings_is_refused(cache, tmp_path):
    cache.write("k" * 64, descriptors())
    content = the_file(cache).read_bytes()
    moved = cache.folder / "jj" / f"{'j' * 64}.safetensors"
    moved.parent.mkdir()
    moved.write_bytes(content)
    with pytest.raises(CacheError, match="belongs to another picture"):
        cache.read("j" * 64)
    moved.unlink()
    other = DescriptorCache(tmp_path, "b" * 64, {})
    (other.folder / "kk").mkdir()
    (other.folder / "kk" / the_file(cache).name).write_bytes(content)
    with pytest.raises(CacheError, match="or other settings"):
        other.read("k" * 64)


def test_a_file_that_went_away_and_one_without_global_vector(cache):
    with pytest.raises(CacheError, match="is gone"):
        cache.read("k" * 64)
    cache.write("k" * 64, Descriptors(torch.ones(1, 1, 2)))
    with pytest.raises(CacheError, match="no global vector"):
        cache.read_image_vector("k" * 64)


def test_wrong_arguments(cache, tmp_path):
    with pytest.raises(ValueError, match="those of one picture, got 2"):
        cache.write("k" * 64, Descriptors(torch.ones(2, 1, 2)))
    with pytest.raises(ValueError, match="at least 16 characters"):
        DescriptorCache(tmp_path, "short", {})


def test_a_cache_folder_that_is_a_file_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError, match="cannot be used as a cache"):
        DescriptorCache(tmp_path / "file", PRINT, {})


def test_old_leftovers_go_and_young_ones_stay(cache, tmp_path):
    (cache.folder / "kk").mkdir()
    old, young = cache.folder / "kk" / ".old.1.tmp", cache.folder / "kk" / ".young.2.tmp"
    for file in (old, young):
        file.write_bytes(b"half")
    os.utime(old, (time.time() - 7200, time.time() - 7200))
    DescriptorCache(tmp_path, PRINT, {})
    assert not old.exists()
    assert young.exists()


def test_a_write_that_fails_leaves_the_old_content(tmp_path, monkeypatch):
    file = tmp_path / "file"
    write_atomically(file, b"old")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        write_atomically(tmp_path / "folder", b"a folder cannot be replaced by a file")
    assert file.read_bytes() == b"old"
    assert not list(tmp_path.glob(".*.tmp"))


def write_for_ever(folder, started):
    cache = DescriptorCache(folder, PRINT, {})
    number = 0
    while True:
        value = Descriptors(torch.full((1, 400, 64), float(number % 7)), image_vector=torch.ones(1, 4))
        cache.write(cache.key(str(number % 50).encode()), value)
        number += 1
        if number == 3:
            started.set()


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is a matter of POSIX")
def test_kill_leaves_whole_files_or_none(tmp_path):
    context = multiprocessing.get_context("spawn")
    started = context.Event()
    process = context.Process(target=write_for_ever, args=(tmp_path, started))
    process.start()
    assert started.wait(60)
    time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    cache = DescriptorCache(tmp_path, PRINT, {})
    written = [key for key in (cache.key(str(number).encode()) for number in range(50)) if key in cache]
    assert written
    for key in written:
        assert cache.read(key).vectors.unique().numel() == 1


def test_the_default_folder_follows_the_system(monkeypatch, tmp_path):
    if sys.platform != "win32":
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert default_cache_folder() == tmp_path / "elvis" / "descriptors"
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setenv("HOME", str(tmp_path))
        assert default_cache_folder() == tmp_path / ".cache" / "elvis" / "descriptors"
