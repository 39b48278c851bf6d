"""From pictures to descriptors in the cache: once each, whatever an earlier run left behind."""

import shutil
from dataclasses import replace

import pytest
import torch

from elvis.errors import DataSetError
from elvis.evaluation.cache import DescriptorCache
from elvis.evaluation.datasets import Picture, load_benchmark
from elvis.evaluation.gather import exact_fingerprint, gather


@pytest.fixture
def cache(tmp_path, extractor):
    return DescriptorCache(tmp_path / "cache", exact_fingerprint(extractor), {})


def test_every_picture_has_its_own_descriptors(toys, extractor, cache):
    benchmark = load_benchmark(toys)
    collection = gather(benchmark, extractor, cache)
    assert extractor.extracted == 15
    from elvis.images import open_image

    for picture in benchmark.gallery:
        (expected,) = type(extractor)().extract([open_image(picture.path)])
        found = cache.read(collection.keys[picture])
        assert torch.equal(found.vectors.half(), expected.vectors.half()), picture.name
        assert torch.equal(found.image_vector, expected.image_vector)
    assert collection.vectors(benchmark.queries).shape == (12, 3)


def test_a_second_run_extracts_nothing_and_a_changed_picture_is_extracted_anew(toys, extractor, cache):
    gather(load_benchmark(toys), extractor, cache)
    gather(load_benchmark(toys), extractor, cache)
    assert extractor.extracted == 15
    shutil.copy(toys / "images" / "90.png", toys / "images" / "91.png")
    gather(load_benchmark(toys), extractor, cache)
    assert extractor.extracted == 15  # the same content has the same descriptors
    (toys / "images" / "92.png").write_bytes((toys / "images" / "90.png").read_bytes() + b"\0")
    gather(load_benchmark(toys), extractor, cache)
    assert extractor.extracted == 16


def test_equal_pictures_are_extracted_once(toys, extractor, cache):
    for name in ("91", "92"):
        shutil.copy(toys / "images" / "90.png", toys / "images" / f"{name}.png")
    benchmark = load_benchmark(toys)
    collection = gather(benchmark, extractor, cache)
    assert extractor.extracted == 13
    assert len(collection.keys) == 15


def test_an_interrupted_run_goes_on(toys, extractor, cache):
    class Interrupted(type(extractor)):
        def extract(self, pictures):
            for number, each in enumerate(super().extract(pictures)):
                if number == 5:
                    raise KeyboardInterrupt
                yield each

    with pytest.raises(KeyboardInterrupt):
        gather(load_benchmark(toys), Interrupted(), cache)
    reports = []
    gather(load_benchmark(toys), extractor, cache, reports.append)
    assert extractor.extracted == 10
    assert [report.done for report in reports] == list(range(1, 16))
    assert reports[4].seconds_left is None
    assert reports[-1].seconds_left == 0


def test_unreadable_and_missing_pictures_count_as_missing(toys, extractor, cache):
    (toys / "images" / "90.png").write_bytes(b"no picture")
    (toys / "images" / "0-1.png").unlink()
    collection = gather(load_benchmark(toys), extractor, cache)
    assert collection.benchmark.missing == {"images/90.png", "images/0-1.png"}
    assert list(collection.unreadable) == ["images/90.png"]
    assert "images/90.png" in collection.unreadable["images/90.png"]
    assert len(collection.keys) == 13


def test_a_picture_that_vanishes_after_the_check_is_unreadable(toys, extractor, cache):
    benchmark = load_benchmark(toys)
    (toys / "images" / "90.png").unlink()
    collection = gather(benchmark, extractor, cache)
    assert "No such file" in collection.unreadable["images/90.png"]


def test_a_crop_is_a_picture_of_its_own(toys, extractor, cache):
    benchmark = load_benchmark(toys)
    whole = benchmark.queries[0]
    crop = Picture(whole.name, whole.path, (0.0, 0.0, 0.5, 1.0))
    benchmark = replace(benchmark, queries=(crop, *benchmark.queries[1:]))
    collection = gather(benchmark, extractor, cache)
    assert collection.keys[crop] != collection.keys[whole]
    assert cache.read(collection.keys[crop]).size.tolist() == [[24, 32]]


def test_an_extractor_that_loses_pictures_is_found_out(toys, extractor, cache):
    class Losing(type(extractor)):
        def extract(self, pictures):
            every = list(super().extract(pictures))
            yield from every[:-1]

    with pytest.raises(ValueError, match="expected descriptors of every picture, got none of 1"):
        gather(load_benchmark(toys), Losing(), cache)


def test_a_cache_for_another_extraction_is_refused(toys, extractor, tmp_path):
    with pytest.raises(ValueError, match="exact fingerprint"):
        gather(load_benchmark(toys), extractor, DescriptorCache(tmp_path / "other", "b" * 64, {}))


def test_precision_makes_another_cache(extractor):
    other = type(extractor)()
    other.precision = "bf16"
    assert exact_fingerprint(other) != exact_fingerprint(extractor)


def test_global_vectors_of_different_lengths_are_refused(toys, extractor, cache):
    collection = gather(load_benchmark(toys), extractor, cache)
    key = collection.keys[collection.benchmark.queries[0]]
    odd = replace(cache.read(key), image_vector=torch.ones(1, 2))
    cache.write(key, odd)
    with pytest.raises(DataSetError, match="different lengths"):
        collection.vectors(collection.benchmark.queries)
