from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from retouch.client.errors import PictureUnusable
from retouch.client.png import encode_png
from retouch.client.sources import file_bytes
from service.imaging.files.codec import decode


def decoded(data: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(data)) as image:
        assert image.format == "PNG"
        return np.asarray(image)


def test_files_are_sent_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    path.write_bytes(b"any bytes")
    with path.open("rb") as file:
        sources = [path, str(path), b"any bytes", bytearray(b"any bytes"), memoryview(b"any bytes"), file]
        assert [file_bytes(source) for source in sources] == 6 * [b"any bytes"]
    assert file_bytes(io.BytesIO(b"any bytes")) == b"any bytes"


@pytest.mark.parametrize(
    "shape", [pytest.param(shape, id="×".join(map(str, shape))) for shape in [(5, 7), (5, 7, 1), (5, 7, 3), (5, 7, 4)]]
)
def test_an_array_of_bytes_becomes_a_png_of_the_same_pixels(shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    assert np.array_equal(decoded(file_bytes(array)), array.reshape(shape[:2] if shape[2:] == (1,) else shape))


def test_a_view_that_is_not_contiguous_is_sent_as_it_looks() -> None:
    array = np.random.default_rng(0).integers(0, 256, (9, 8, 3), np.uint8)
    assert np.array_equal(decoded(file_bytes(array[::2, ::-1])), array[::2, ::-1])


def test_ids_of_16_bits_keep_their_values() -> None:
    array = np.array([[0, 255, 256], [4660, 65534, 65535]], np.uint16)
    assert np.array_equal(decoded(file_bytes(array)), array)


def test_a_mask_of_truths_is_black_and_white() -> None:
    array = np.array([[True, False], [False, True]])
    assert np.array_equal(decoded(file_bytes(array)), np.array([[255, 0], [0, 255]], np.uint8))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_a_pil_image_becomes_a_png_of_the_same_pixels(mode: str) -> None:
    image = Image.new(mode, (6, 4), 1)
    with Image.open(io.BytesIO(file_bytes(image))) as sent:
        assert (sent.format, sent.mode, sent.size) == ("PNG", mode, (6, 4))
        assert np.array_equal(np.asarray(sent), np.asarray(image))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_pil_image_is_upright_for_the_server_as_the_file_that_it_is_of(tmp_path: Path, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = orientation, "a camera"
    pixels = np.random.default_rng(0).integers(0, 256, (4, 6, 3), np.uint8)
    path = tmp_path / "photo.png"
    Image.fromarray(pixels).save(path, exif=exif)
    with Image.open(path) as image:
        sent = file_bytes(image)
    upright = decode(path.read_bytes(), max_pixels=100).pixels
    assert np.array_equal(decode(sent, max_pixels=100).pixels, upright)
    assert b"a camera" not in sent, "what else a camera wrote is nobody else's concern"


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_tiff_is_upright_for_the_server_whether_pillow_has_loaded_it_or_not(orientation: int, loaded: bool) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (4, 6, 3), np.uint8)).save(file, "TIFF", exif=exif)
    with Image.open(file) as image:
        if loaded:
            image.load()
        sent = file_bytes(image)
    with Image.open(file) as image:
        upright = np.asarray(ImageOps.exif_transpose(image))
    assert np.array_equal(decode(sent, max_pixels=100).pixels, upright)


@pytest.mark.parametrize("file_format", ["JPEG", "WEBP"])
def test_a_pil_image_whose_orientation_is_in_xmp_alone_is_upright_for_the_server(file_format: str) -> None:
    xmp = b'<rdf:Description xmlns:tiff="http://ns.adobe.com/tiff/1.0/" tiff:Orientation="6"/>'
    file = io.BytesIO()
    Image.new("RGB", (6, 4)).save(file, file_format, xmp=xmp)
    with Image.open(file) as image:
        assert decode(file_bytes(image), max_pixels=100).pixels.shape == (6, 4, 3)


def test_a_pil_image_whose_exif_is_broken_is_sent_as_it_is() -> None:
    image = Image.new("RGB", (6, 4))
    image.info["exif"] = b"Exif\0\0garbage!"
    assert decoded(file_bytes(image)).shape == (4, 6, 3)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        pytest.param(np.zeros((4, 4, 3), np.float32), "float32 .*pass uint8 from 0 to 255", id="floats"),
        pytest.param(np.zeros((4, 4), np.int64), "int64", id="wide integers"),
        pytest.param(np.zeros((4, 4, 3), np.uint16), "uint16 in 3 channels", id="deep colour"),
        pytest.param(np.zeros((3, 4, 4), np.uint8)[None], r"shape \(1, 3, 4, 4\) is not a picture", id="batch"),
        pytest.param(np.zeros((4, 4, 2), np.uint8), r"shape \(4, 4, 2\) is not a picture", id="two channels"),
        pytest.param(np.zeros((0, 4), np.uint8), "is not a picture", id="no pixels"),
        pytest.param(Image.new("CMYK", (2, 2)), r"mode CMYK .*image\.convert\('RGB'\)", id="CMYK"),
        pytest.param("gone.png", "^gone.png cannot be read: No such file or directory$", id="no file"),
        pytest.param(".", r"\. cannot be read: .*[Dd]irectory", id="folder"),
        pytest.param(b"", "is empty", id="empty"),
        pytest.param(io.StringIO("text"), "open it with mode 'rb'", id="text"),
        pytest.param(io.TextIOWrapper(io.BytesIO(b"\xff\xd8"), "utf-8"), "open it with mode 'rb'", id="JPEG as text"),
        pytest.param(7, "type int is not a picture; pass a path", id="number"),
    ],
)
def test_what_is_no_picture_is_refused_with_what_to_pass(source, message: str) -> None:
    with pytest.raises(PictureUnusable, match=message):
        file_bytes(source)


def test_an_array_of_another_library_needs_no_numpy() -> None:
    """An interpreter that has not loaded numpy or Pillow encodes any object with the interface of an array."""
    code = """
import sys
from retouch.client.sources import file_bytes
class Array:
    shape, dtype, __array_interface__ = (2, 2), "uint8", {}
    def tobytes(self): return bytes(4)
print(len(file_bytes(Array())), sorted({"numpy", "PIL"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{len(encode_png(np.zeros((2, 2), np.uint8)))} []\n"
