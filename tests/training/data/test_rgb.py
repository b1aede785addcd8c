import numpy as np
import pytest
from PIL import Image

from training.data.rgb import to_rgb


@pytest.mark.parametrize("stored", [np.dtype("<u2"), np.dtype(">u2")], ids=["little endian", "big endian"])
def test_sixteen_bit_grey_keeps_its_brightness(stored):
    values = np.uint16([[0, 257, 1966, 65535]])
    image = Image.frombytes("I;16B" if stored.byteorder == ">" else "I;16", (4, 1), values.astype(stored).tobytes())
    assert to_rgb(image).tolist() == [[[0] * 3, [1] * 3, [8] * 3, [255] * 3]]


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGBA", "CMYK", "YCbCr"])
def test_other_modes_become_what_pillow_makes_of_them(mode):
    image = Image.new("RGB", (3, 2), (250, 250, 250)).convert(mode)
    assert (to_rgb(image) == np.asarray(image.convert("RGB"))).all()
    assert to_rgb(image).shape == (2, 3, 3)
