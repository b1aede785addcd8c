from __future__ import annotations

import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from service.core.errors import InvalidImage
from service.imaging.files.deflate import Deflate, by_isal, by_zlib, inflate
from service.imaging.files.header import read_header
from service.imaging.files.png import decode_png, encode_png
from tests.serving import image_files as files

DATA = Path(__file__).resolve().parents[3] / "data"
both = pytest.mark.parametrize("by", [by_isal(), by_zlib()], ids=["isal", "zlib"])


def a_picture(height: int, width: int, channels: int, kind: Any = np.uint8) -> NDArray[Any]:
    """Return gradients with a little noise, which compress like a photograph."""
    steps = np.random.default_rng(3).integers(-2, 3, (height, width, channels))
    return (np.cumsum(steps, axis=0) * (37 if kind == np.uint16 else 1)).astype(kind)


@both
@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("size", [(1, 1), (7, 5), (600, 700)])
def test_every_kind_of_png_survives_a_round_trip(by: Deflate, kind: Any, channels: int, size: tuple[int, int]) -> None:
    pixels = a_picture(*size, channels, kind)
    file = encode_png(pixels, None, by)
    for reader in (by_isal(), by_zlib()):
        assert np.array_equal(decode_png(file, read_header(file, max_pixels=10**6), reader), pixels)


@both
@pytest.mark.parametrize("size", [1, 65_536, 2**20 - 1, 2**20, 2**20 + 1, 3 * 2**20])
@pytest.mark.parametrize("random", [False, True])
def test_data_of_any_length_are_inflated_to_the_last_byte(by: Deflate, size: int, random: bool) -> None:
    data = np.random.default_rng(0).bytes(size) if random else bytes(size)
    packed = by.compress(data)
    for behind in (b"", b"behind"):
        found, unused = inflate(packed + behind, size, by)
        assert found is not None
        assert found.tobytes() == data
        assert unused == len(behind)


@both
@pytest.mark.parametrize("size", [1000, 3 * 2**20])
@pytest.mark.parametrize("wrong", [-1, 1])
def test_data_of_an_unexpected_length_are_detected(by: Deflate, size: int, wrong: int) -> None:
    assert inflate(zlib.compress(bytes(size)), size + wrong, by)[0] is None


@both
@pytest.mark.parametrize("size", [1000, 3 * 2**20])
def test_truncated_or_changed_data_are_detected(by: Deflate, size: int) -> None:
    packed = zlib.compress(np.random.default_rng(1).bytes(size))
    assert inflate(packed[:-5], size, by)[0] is None
    with pytest.raises(by.error):
        inflate(packed[:-4] + b"abcd", size, by)


@both
def test_a_png_of_many_times_its_size_is_refused_without_being_inflated(by: Deflate) -> None:
    bomb = files.png_of_chunks(files.ihdr(1200, 600, 16, 2), files.chunk(b"IDAT", zlib.compress(bytes(40 * 2**20))))
    with pytest.raises(InvalidImage):
        decode_png(bomb, read_header(bomb, max_pixels=10**6), by)


def test_isal_makes_no_file_much_larger_than_zlib_unless_it_is_tiny() -> None:
    rows, columns = np.mgrid[:256, :256]
    disc = ((rows - 128) ** 2 + (columns - 128) ** 2 < 90**2)[:, :, None]
    pictures = {
        **{name: np.asarray(Image.open(DATA / name).convert("RGB")) for name in ("dress.jpg", "crocs.jpg")},
        "one colour": np.full((256, 256, 3), 200, np.uint8),
        "label map": np.repeat(np.repeat(a_picture(16, 16, 3), 16, 0), 16, 1),
        "mask": disc.astype(np.uint8) * 255,
        "16 bits": a_picture(256, 256, 3, np.uint16),
    }
    for name, pixels in pictures.items():
        isal, plain = (len(encode_png(pixels, None, by)) for by in (by_isal(), by_zlib()))
        assert isal <= max(1.06 * plain, plain + 600), name


def test_without_isal_pngs_are_written_and_read_by_zlib() -> None:
    program = """
import sys
sys.modules["isal"] = None
import numpy as np
from service.imaging.files import deflate, png
from service.imaging.files.header import read_header
pixels = np.arange(300, dtype=np.uint8).reshape(10, 10, 3)
file = png.encode_png(pixels, None)
assert deflate.FASTEST.name == "zlib"
assert (png.decode_png(file, read_header(file, max_pixels=1000)) == pixels).all()
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
