"""Prepared descriptors within a bound, the same from memory and from disk."""

import pytest
import torch

from elvis import Descriptors
from elvis.evaluation.cache import DescriptorCache
from elvis.evaluation.prepared import PreparedPictures
from elvis.models import Chamfer, Elvis, ElvisConfig


class CountingChamfer(Chamfer):
    prepared = 0

    def prepare(self, descriptors):
        type(self).prepared += 1
        return super().prepare(descriptors)


@pytest.fixture
def kept(tmp_path):
    """A cache with six pictures of 2 to 7 descriptors, and their keys."""
    cache = DescriptorCache(tmp_path, "a" * 64, {})
    generator = torch.Generator().manual_seed(1)
    for number in range(6):
        vectors = torch.randn(1, 2 + number, 8, generator=generator)
        cache.write(f"{number}" * 64, Descriptors(vectors, size=torch.tensor([[4001, 3000]])))
    return cache, [f"{number}" * 64 for number in range(6)]


@pytest.mark.parametrize("memory", [0, 150, 1 << 20])
def test_batches_are_the_same_whatever_the_memory(kept, memory):
    cache, keys = kept
    torch.manual_seed(3)
    head = Elvis(ElvisConfig(input_dim=8, dim=4)).eval()
    with torch.inference_mode(), PreparedPictures(head, cache, keys, memory, "cpu") as pictures:
        for places in ([0], [5, 0, 5], [3, 2, 1, 4]):
            found = pictures.batch(places)
            expected = head.prepare(Descriptors.stack([cache.read(keys[place]) for place in places]))
            real = expected.mask
            assert torch.equal(found.mask, real)
            torch.testing.assert_close(found.vectors[real].float(), expected.vectors[real], rtol=1e-3, atol=1e-3)
            torch.testing.assert_close(found.gain[real].float(), expected.gain[real], rtol=1e-3, atol=1e-3)
            assert found.vectors.dtype == torch.float16
            assert found.size.tolist() == [[4001, 3000]] * len(places)  # half precision cannot count pixels
        assert pictures.bytes_in_memory <= memory
        assert (pictures.bytes_on_disk > 0) == (memory < 1 << 20)


def test_each_picture_is_prepared_once(kept):
    cache, keys = kept
    CountingChamfer.prepared = 0
    with PreparedPictures(CountingChamfer(), cache, keys, 100, "cpu") as pictures:
        for _ in range(3):
            pictures.batch([0, 1, 2])
    assert CountingChamfer.prepared == 3


def test_nothing_is_left_on_disk(kept):
    cache, keys = kept
    before = sorted(cache.folder.rglob("*"))
    with PreparedPictures(Chamfer(), cache, keys, 0, "cpu") as pictures:
        pictures.batch([0, 1, 2])
    assert sorted(cache.folder.rglob("*")) == before
