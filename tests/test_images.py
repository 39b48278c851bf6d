import io
import os
import stat
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
import torch
from PIL import Image, ImageCms, features

from elvis.errors import UnreadableImage
from elvis.images import MAX_PIXELS, crop_box, open_image, readable_formats, to_pixels

POSIX = pytest.mark.skipif(os.name == "nt", reason="Windows has no such names or files")
NEWLINE = pytest.param("two\nlines.jpg", marks=POSIX)

RED, GREEN, BLUE, YELLOW = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0)


def quarters(width=40, height=20):
    """Red top left, green top right, blue bottom left, yellow bottom right: no two of its turns are alike."""
    image = Image.new("RGB", (width, height))
    for colour, x, y in [(RED, 0, 0), (GREEN, 1, 0), (BLUE, 0, 1), (YELLOW, 1, 1)]:
        image.paste(colour, (x * width // 2, y * height // 2, (x + 1) * width // 2, (y + 1) * height // 2))
    return image


def corners(image):
    width, height = image.size
    return [image.getpixel((x, y)) for y in (2, height - 3) for x in (2, width - 3)]


def encoded(image, kind="PNG", **options):
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def near(found, expected, tolerance=6):
    return all(abs(a - b) <= tolerance for a, b in zip(found, expected, strict=True))


# How a camera that was held in one of eight ways stores an upright picture: the inverse of what a reader must do.
STORED = {
    1: lambda image: image,
    2: lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
    3: lambda image: image.transpose(Image.Transpose.ROTATE_180),
    4: lambda image: image.transpose(Image.Transpose.FLIP_TOP_BOTTOM),
    5: lambda image: image.transpose(Image.Transpose.TRANSPOSE),
    6: lambda image: image.transpose(Image.Transpose.ROTATE_90),
    7: lambda image: image.transpose(Image.Transpose.TRANSVERSE),
    8: lambda image: image.transpose(Image.Transpose.ROTATE_270),
}


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", STORED)
def test_every_exif_orientation_is_made_upright(orientation, kind):
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"quality": 98, "subsampling": 0} if kind == "JPEG" else {"lossless": True} if kind == "WEBP" else {}
    content = encoded(STORED[orientation](quarters()), kind, exif=exif, **options)
    found = open_image(content)
    assert found.size == (40, 20)
    assert all(near(a, b) for a, b in zip(corners(found), [RED, GREEN, BLUE, YELLOW], strict=True))


@pytest.mark.parametrize("orientation", [0, 9, 77])
def test_an_orientation_that_does_not_exist_changes_nothing(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    assert corners(open_image(encoded(quarters(), exif=exif))) == [RED, GREEN, BLUE, YELLOW]


def test_damaged_exif_costs_a_warning_not_the_picture(caplog):
    content = encoded(quarters(), "PNG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff")
    assert open_image(content).size == (40, 20)


def test_cmyk_becomes_rgb():
    image = Image.new("CMYK", (8, 8), (0, 255, 255, 0))
    assert near(open_image(encoded(image, "JPEG", quality=95)).getpixel((4, 4)), RED, 12)
    assert near(open_image(encoded(image, "TIFF")).getpixel((4, 4)), RED, 1)


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bits_are_scaled_not_clipped(kind):
    values = np.array([[0, 0x7F7F, 0xFFFF]], dtype=np.uint16)
    found = open_image(encoded(Image.fromarray(values), kind))
    assert [found.getpixel((x, 0))[0] for x in range(3)] == [0, 127, 255]


@pytest.mark.parametrize("values", [[0.0, 0.5, 1.0], [0.0, 127.5, 255.0], [-3.0, 0.0, 3.0]])
def test_floats_are_scaled_by_their_range(values):
    found = open_image(encoded(Image.fromarray(np.array([values], dtype=np.float32)), "TIFF"))
    assert [found.getpixel((x, 0))[0] for x in range(3)] == [0, 128, 255]


def test_transparent_pixels_become_white():
    palette = Image.new("P", (4, 4), 0)
    palette.putpalette([10, 20, 30, 200, 0, 0])
    palette.putpixel((3, 3), 1)
    for content in (encoded(palette, "PNG", transparency=0), encoded(palette, "GIF", transparency=0)):
        assert open_image(content).getpixel((0, 0)) == (255, 255, 255)
        assert open_image(content).getpixel((3, 3)) == (200, 0, 0)
    half = open_image(encoded(Image.new("RGBA", (2, 2), (0, 0, 0, 128))))
    assert near(half.getpixel((0, 0)), (127, 127, 127), 1)
    grey = open_image(encoded(Image.new("LA", (2, 2), (0, 0))))
    assert grey.getpixel((0, 0)) == (255, 255, 255)


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP"])
def test_of_an_animation_the_first_frame_is_taken(kind):
    frames = [Image.new("RGB", (8, 8), colour) for colour in (BLUE, RED, GREEN)]
    content = encoded(frames[0], kind, save_all=True, append_images=frames[1:], duration=50)
    assert near(open_image(content).getpixel((4, 4)), BLUE)


@pytest.mark.parametrize("mode", ["1", "L", "P", "YCbCr", "LAB"])
def test_other_colour_modes_become_rgb(mode):
    image = Image.new("RGB", (8, 8), "white")
    if mode == "LAB":
        profiles = ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB")
        stored = ImageCms.profileToProfile(image, *profiles, outputMode="LAB")
    else:
        stored = image.convert(mode)
    found = open_image(encoded(stored, "JPEG" if mode == "YCbCr" else "TIFF"))
    assert found.mode == "RGB"
    assert near(found.getpixel((4, 4)), (255, 255, 255))


@pytest.mark.parametrize("name", ["wrong.txt", "wrong.png", "no-suffix", "Blümchen in São Paulo.jpg", NEWLINE])
def test_the_content_decides_whatever_the_name(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(encoded(quarters(), "JPEG"))
    assert open_image(path).size == (40, 20)
    assert open_image(str(path)).mode == "RGB"


def test_avif_is_read_where_pillow_can():
    if not features.check("avif"):
        pytest.skip("this Pillow was built without AVIF")
    assert near(open_image(encoded(Image.new("RGB", (32, 32), RED), "AVIF", quality=95)).getpixel((9, 9)), RED, 12)


def test_heic_says_what_brings_it():
    content = b"\0\0\0\x18ftypheic\0\0\0\0heicmif1" + bytes(64)
    with pytest.raises(UnreadableImage, match="damaged" if "HEIF" in readable_formats() else "pip install pillow-heif"):
        open_image(content)


def test_heic_is_read_where_its_package_is_installed():
    pytest.importorskip("pillow_heif", reason="pillow-heif is not installed")
    assert "HEIF" in readable_formats()
    found = open_image(encoded(quarters(64, 32), "HEIF", quality=98))
    assert all(near(a, b, 20) for a, b in zip(corners(found), [RED, GREEN, BLUE, YELLOW], strict=True))


def test_a_picture_in_several_parts_gives_its_first():
    content = encoded(Image.new("RGB", (8, 8), RED), "MPO", save_all=True, append_images=[Image.new("RGB", (8, 8))])
    assert near(open_image(content).getpixel((4, 4)), RED)


def test_one_pixel_and_the_thinnest_pictures(tmp_path):
    assert open_image(encoded(Image.new("RGB", (1, 1)))).size == (1, 1)
    assert to_pixels(Image.new("RGB", (1, 1)), 28, 14).shape == (3, 28, 28)
    tracemalloc.start()
    pixels = to_pixels(open_image(encoded(Image.new("RGB", (20_000, 3), RED))), 518, 14)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert pixels.shape == (3, 14, 518)
    assert peak < 8_000_000
    assert torch.allclose(pixels, torch.tensor([1.0, 0, 0])[:, None, None].expand_as(pixels), atol=1e-5)


def png_header(width, height):
    """A PNG that promises a size and holds next to nothing."""

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [10_000, 12_000, 60_000])  # below Pillow's warning, above it, above its error
def test_a_bomb_is_refused_from_its_header(tmp_path, side):
    path = tmp_path / "bomb.png"
    path.write_bytes(png_header(side, side))
    tracemalloc.start()
    with pytest.raises(UnreadableImage, match=rf"bomb.png: .*pixels.*limit of {MAX_PIXELS:,}"):
        open_image(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4_000_000


def test_the_limit_is_the_callers():
    content = encoded(Image.new("RGB", (30, 20)))
    assert open_image(content, max_pixels=600).size == (30, 20)
    with pytest.raises(UnreadableImage, match="30 x 20 pixels exceed the limit of 599"):
        open_image(content, max_pixels=599)


@POSIX
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP", "JPEG2000"])
def test_a_truncated_picture_is_refused_in_one_line(tmp_path, kind):
    rng = np.random.default_rng(5)
    content = encoded(Image.fromarray(rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)), kind)
    path = tmp_path / "cut\nshort"
    path.write_bytes(content[: len(content) * 2 // 3])
    with pytest.raises(UnreadableImage) as caught:
        open_image(path)
    message = str(caught.value)
    assert "cut\\nshort: it" in message
    assert "\n" not in message


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP", "JPEG2000", "PPM"])
def test_damaged_bytes_give_a_picture_or_one_line_never_a_crash(kind):
    rng = np.random.default_rng(7)
    content = encoded(quarters(), kind)
    for _ in range(60):
        damaged = bytearray(content)
        for place in rng.integers(0, len(damaged), 4):
            damaged[place] = rng.integers(0, 256)
        try:
            answer = open_image(bytes(damaged)).mode
        except UnreadableImage as error:
            answer = str(error)
        assert answer == "RGB" or (answer.startswith("picture of") and "\n" not in answer)


@POSIX
def test_what_is_no_picture_says_why(tmp_path):
    (tmp_path / "empty.jpg").write_bytes(b"")
    (tmp_path / "text.jpg").write_text("hello")
    (tmp_path / "script.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    os.mkfifo(tmp_path / "pipe.jpg")
    for name, reason in [
        ("empty.jpg", "it is empty"),
        ("text.jpg", "in no format that is read"),
        ("script.png", "in no format that is read"),
        ("pipe.jpg", "it is a pipe, socket or device, not a file"),
        (".", "it is a folder, not a file"),
        ("absent.jpg", "no such file"),
        ("nul\0byte.jpg", "null"),
    ]:
        with pytest.raises(UnreadableImage, match=reason):
            open_image(tmp_path / name)
    with pytest.raises(UnreadableImage, match="0 bytes: it is empty"):
        open_image(b"")


def test_a_file_without_permission_is_named(tmp_path):
    path = tmp_path / "secret.png"
    path.write_bytes(encoded(quarters()))
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user reads files without permission")
    with pytest.raises(UnreadableImage, match="secret.png: no permission to read it"):
        open_image(path)
    path.chmod(stat.S_IRUSR)


def test_permission_is_reported_when_the_system_refuses(monkeypatch, tmp_path):
    # Root reads everything, so the refusal itself is produced here.
    path = tmp_path / "secret.png"
    path.write_bytes(encoded(quarters()))

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(type(path), "open", refuse)
    with pytest.raises(UnreadableImage, match="secret.png: no permission to read it"):
        open_image(path)


def test_the_factor_comes_from_the_uncropped_longer_side():
    image = Image.new("RGB", (400, 200))
    assert to_pixels(image, 200, 10).shape == (3, 100, 200)
    assert to_pixels(image, 200, 10, (0.5, 0.5, 0.25, 0.5)).shape == (3, 50, 50)
    assert to_pixels(image, 200, 10, (0.0, 0.0, 0.001, 0.001)).shape == (3, 10, 10)


def test_a_crop_shows_what_stands_there():
    pixels = to_pixels(quarters(), 40, 10, (0.5, 0.5, 0.5, 0.5))
    assert torch.allclose(pixels.mean(dim=(1, 2)), torch.tensor([1.0, 1.0, 0.0]), atol=1e-5)


def test_resampling_is_antialiased_bicubic_on_floats():
    rng = np.random.default_rng(3)
    image = Image.fromarray(rng.integers(0, 256, (90, 120, 3), dtype=np.uint8))
    planes = [
        np.asarray(Image.fromarray(plane.astype(np.float32)).resize((56, 42), Image.Resampling.BICUBIC)) / 255
        for plane in np.moveaxis(np.asarray(image), 2, 0)
    ]
    assert np.allclose(to_pixels(image, 56, 14).numpy(), np.stack(planes), atol=1e-4)


def test_averaging_before_a_large_reduction_hardly_shows():
    rng = np.random.default_rng(4)
    smooth = Image.fromarray(rng.integers(0, 256, (60, 80, 3), dtype=np.uint8)).resize((1600, 1200))
    direct = torch.from_numpy(np.array(smooth)).permute(2, 0, 1)[None].float() / 255
    direct = torch.nn.functional.interpolate(direct, (168, 224), mode="bicubic", antialias=True)[0]
    assert (to_pixels(smooth, 224, 14) - direct).abs().mean() < 1 / 255


@pytest.mark.parametrize(
    "crop", [(-0.1, 0, 1, 1), (0, 0, 0, 1), (0.5, 0, 0.6, 1), (1, 0, 0.1, 1), (0, 0, float("nan"), 1)]
)
def test_a_crop_outside_the_picture_is_refused(crop):
    with pytest.raises(ValueError, match="crop: expected x,y,w,h as fractions inside the picture, got"):
        crop_box((100, 100), crop)


def test_crops_of_whole_pixels_survive_the_way_through_fractions():
    size = (1013, 769)
    for box in [(0, 0, 1013, 769), (136, 17, 651, 768), (1012, 768, 1013, 769), (3, 5, 4, 6)]:
        left, top, right, bottom = box
        crop = (left / 1013, top / 769, (right - left) / 1013, (bottom - top) / 769)
        assert crop_box(size, crop) == box
