import weakref

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from elvis.backbones import Tokens
from elvis.detector import SpatialAttention2d
from elvis.errors import UnknownName, WeightsError
from elvis.extract import ExtractionSettings, Extractor, patch_centres


def scene(seed, size=(96, 64)):
    generator = torch.Generator().manual_seed(seed)
    blobs = (torch.rand(4, 6, 3, generator=generator) * 255).byte().numpy()
    return Image.fromarray(blobs).resize(size, Image.Resampling.BICUBIC)


@pytest.fixture(scope="module")
def extractor():
    return Extractor(ExtractionSettings(longer_side=112, descriptors=20, precision="fp32"))


class BrightBackbone:
    """A real backbone in small: a token is the mean colour of its patch, attention its brightness."""

    patch, dim, image_dim = 10, 3, 3
    device = torch.device("cpu")

    def __init__(self):
        self.batches = []

    def __call__(self, pixels):
        self.batches.append(len(pixels))
        grid = torch.nn.functional.avg_pool2d(pixels, self.patch).permute(0, 2, 3, 1)
        mean = torch.nn.functional.normalize(grid.mean(dim=(1, 2)), dim=1)
        return Tokens(grid, grid.mean(dim=3), mean)


@pytest.fixture
def bright(extractor):
    """An extractor whose tokens can be told from the picture by eye."""
    small = Extractor.__new__(Extractor)
    small.__dict__.update(extractor.__dict__)
    small._backbone = BrightBackbone()
    small.patch, small.dim, small.image_dim, small.longer_side = 10, 3, 3, 200
    return small


def with_spot(size, box):
    image = Image.new("RGB", size, (20, 20, 40))
    image.paste((255, 255, 0), box)
    return image


def test_what_comes_out_is_complete(extractor):
    one, two = extractor.extract([scene(1), scene(2, (64, 96))])
    for found, size in [(one, [96, 64]), (two, [64, 96])]:
        assert found.vectors.shape == (1, 20, extractor.dim)
        assert found.vectors.dtype == torch.float32
        assert found.size.tolist() == [size]
        assert found.image_vector.norm() == pytest.approx(1)
        assert found.xy.min() > 0
        assert found.xy.max() < 1
        assert (found.strength.diff(dim=1) <= 0).all()
        assert found.mask.all()


def test_a_picture_with_few_patches_keeps_all(extractor):
    (found,) = extractor.extract([scene(1, (96, 12))])
    assert found.vectors.shape[1] == 8
    assert len({tuple(place) for place in found.xy[0].tolist()}) == 8


def test_a_bright_patch_ends_at_its_place(bright):
    # 400 x 300 becomes 200 x 150: patches are 20 pixels wide in the picture.
    (found,) = bright.extract([with_spot((400, 300), (320, 40, 340, 60))])
    assert torch.allclose(found.xy[0, 0], torch.tensor([330 / 400, 50 / 300]))
    assert torch.allclose(found.vectors[0, 0], torch.tensor([1.0, 1.0, 0.0]), atol=0.05)


def test_a_crops_patches_lie_in_the_whole_picture(bright):
    image = with_spot((400, 300), (320, 40, 340, 60))
    (found,) = bright.extract([(image, (0.5, 0.0, 0.5, 0.5))])
    assert found.size.tolist() == [[400, 300]]
    # 200 x 150 pixels of it become 100 x 80 (a multiple of the patch): 10 columns, 8 rows of 18.75 pixels.
    assert abs(found.xy[0, 0, 0] - 330 / 400) < 1e-6
    assert abs(found.xy[0, 0, 1] - 50 / 300) < 18.75 / 300
    assert found.xy[..., 0].min() > 0.5
    assert found.xy[..., 1].max() < 0.5


def test_the_same_alone_in_a_batch_and_in_any_order(extractor):
    pictures = [scene(seed, size) for seed, size in enumerate([(96, 64), (64, 96), (96, 64), (96, 64), (50, 50)])]
    alone = [next(iter(extractor.extract([picture]))) for picture in pictures]
    batching = Extractor(extractor.settings, batch_size=3)
    for order in ([0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 2, 0, 1, 3]):
        for place, found in zip(order, batching.extract([pictures[k] for k in order]), strict=True):
            expected = alone[place]
            assert torch.equal(found.size, expected.size)
            assert torch.allclose(found.image_vector, expected.image_vector, atol=1e-5)
            assert torch.allclose(found.vectors.sum(1), expected.vectors.sum(1), atol=1e-2)
            assert torch.allclose(found.strength, expected.strength, atol=0.1)


def test_the_engine_is_said_and_is_no_part_of_the_fingerprint(extractor):
    plain = Extractor(extractor.settings, engine="torch")
    assert (plain.engine, plain.precision) == ("torch", "fp32")
    assert extractor.precision == ("fp32" if extractor.engine == "torch" else f"fp32 by {extractor.engine}")
    assert plain.fingerprint == extractor.fingerprint
    (one,), (two,) = (each.extract([scene(1)]) for each in (plain, extractor))
    assert torch.allclose(one.vectors.sum(1), two.vectors.sum(1), atol=1e-2)
    assert torch.allclose(one.image_vector, two.image_vector, atol=1e-4)


def test_equal_shapes_are_computed_together_and_order_is_kept(bright):
    bright._batch_size = 2
    sizes = [(40, 20), (20, 40), (40, 20), (20, 40), (40, 20)]
    pictures = [Image.new("RGB", size, (shade, shade, shade)) for shade, size in enumerate(sizes, start=100)]
    found = list(bright.extract(pictures))
    assert bright._backbone.batches == [2, 1, 2]
    assert [tuple(each.size[0].tolist()) for each in found] == sizes
    assert [round(float(each.vectors[0, 0, 0]) * 255) for each in found] == [100, 101, 102, 103, 104]


def test_pictures_are_read_no_further_ahead_than_said(bright):
    asked = []

    def pictures():
        for number in range(100):
            asked.append(number)
            yield Image.new("RGB", (20, 20))

    stream = bright.extract(pictures())
    next(stream)
    assert len(asked) == 1
    bright._batch_size = 2
    asked.clear()
    next(bright.extract(pictures()))
    assert len(asked) == 8


def test_a_picture_is_let_go_after_its_turn(bright):
    seen = []

    def pictures():
        for _ in range(6):
            image = Image.new("RGB", (20, 20))
            seen.append(weakref.ref(image))
            yield image
            del image

    for place, _ in enumerate(bright.extract(pictures())):
        assert sum(reference() is not None for reference in seen[:place]) == 0


def test_dense_gives_every_patch_row_by_row(extractor):
    every, (rows, columns) = extractor.dense(scene(3))
    assert (rows, columns) == (5, 8)
    assert every.vectors.shape == (1, 40, extractor.dim)
    assert torch.allclose(every.xy[0], patch_centres((96, 64), (5, 8)))
    (kept,) = extractor.extract([scene(3)])
    order = every.strength[0].argsort(descending=True, stable=True)[:20]
    assert torch.allclose(every.vectors[0, order], kept.vectors[0])
    assert torch.equal(every.xy[0, order], kept.xy[0])


def test_descriptors_can_be_trained_on(extractor):
    (found,) = extractor.extract([scene(1)])
    weight = torch.ones(extractor.dim, requires_grad=True)
    (found.vectors * weight).sum().backward()
    assert torch.allclose(weight.grad, found.vectors.sum(dim=(0, 1)))


def test_a_detector_file_chooses_in_its_own_way(extractor, tmp_path):
    torch.manual_seed(0)
    detector = SpatialAttention2d(extractor.dim)
    path = tmp_path / "detector.safetensors"
    save_file(dict(detector.state_dict()), path)
    settings = ExtractionSettings(longer_side=112, descriptors=20, precision="fp32", selection=str(path))
    chosen = Extractor(settings)
    (found,) = chosen.extract([scene(1)])
    every, grid = chosen.dense(scene(1))
    expected = detector.eval()(every.vectors.unflatten(1, grid)).sort(dim=1, descending=True).values[:, :20]
    assert torch.allclose(found.strength, expected, atol=1e-5)
    assert chosen.fingerprint != extractor.fingerprint
    moved = path.rename(tmp_path / "moved.safetensors")
    again = Extractor(ExtractionSettings(longer_side=112, descriptors=20, precision="fp32", selection=str(moved)))
    assert again.fingerprint == chosen.fingerprint


def test_a_detector_for_another_backbone_is_refused(tmp_path):
    path = tmp_path / "detector.safetensors"
    save_file(dict(SpatialAttention2d(768).state_dict()), path)
    with pytest.raises(WeightsError, match="descriptors of length 768, the backbone dinov2-small gives 384"):
        Extractor(ExtractionSettings(selection=str(path)))
    with pytest.raises(UnknownName, match="unknown selection 'strong': choose one of both-cues"):
        Extractor(ExtractionSettings(selection="strong"))


def test_the_fingerprint_follows_what_changes_descriptors(extractor):
    def fingerprint(**changes):
        return Extractor(ExtractionSettings(**{"longer_side": 112, "descriptors": 20, **changes})).fingerprint

    assert fingerprint() == fingerprint(precision="bf16") == extractor.fingerprint
    assert fingerprint(longer_side=None) == fingerprint(longer_side=518)
    others = [fingerprint(block=-1), fingerprint(longer_side=518), fingerprint(descriptors=21)]
    assert len({extractor.fingerprint, *others}) == 4


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"descriptors": 0}, "descriptors: expected at least 1, got 0"),
        ({"longer_side": 0}, "longer_side: expected at least 1 pixel, got 0"),
        ({"block": 0}, "block: expected a place from the end such as -1 or -2, got 0"),
    ],
)
def test_settings_are_checked(wrong, message):
    with pytest.raises(ValueError, match=message):
        ExtractionSettings(**wrong)
    with pytest.raises(ValueError, match="batch_size: expected at least 1, got 0"):
        Extractor(batch_size=0)
    with pytest.raises(UnknownName, match="unknown extraction setting 'size'"):
        ExtractionSettings.from_dict({"size": 3})


def test_what_is_no_picture_is_refused(extractor):
    with pytest.raises(TypeError, match="pictures: expected PIL images as open_image gives them, got str"):
        next(extractor.extract(["a.jpg"]))
