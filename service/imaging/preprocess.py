"""Pictures and masks to samples: cropped, scaled, padded, and converted to 8 bits and the model's channels. Pure."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from engines.manifest import Manifest
from service.core.batch_rows import Crop, Sample
from service.core.pictures import Bool2D, Picture, Pixels, Size
from service.imaging.files.pixels import to_8_bits, to_channels


def inpaint_sample(picture: Picture, mask: Bool2D, crop: Crop, manifest: Manifest) -> Sample:
    """The sample of one crop: `image` uint8 H×W×C and `mask` uint8 H×W (1 = fill) with the tile's size.

    The mask has all holes in the crop's box, also those that another crop fills. When it is scaled down, a pixel is
    masked if any of its source pixels is, so that no hole is lost and no masked content is visible to the model.
    """
    rows, columns = slice(crop.box.top, crop.box.bottom), slice(crop.box.left, crop.box.right)
    image = _scale_image(_model_pixels(picture.pixels[rows, columns], manifest), crop.scaled)
    holes = _scale_mask_down(mask[rows, columns].view(np.uint8), crop.scaled)
    if manifest.input("mask") is None:
        image = _hide_masked(image, holes)
    border = cv2.BORDER_REFLECT if manifest.size.padding == "symmetric" else cv2.BORDER_REFLECT_101
    return Sample(crop.tile, {"image": _pad_to_tile(image, crop, border), "mask": _pad_to_tile(holes, crop, border)})


def translate_sample(picture: Picture, crop: Crop, manifest: Manifest) -> Sample:
    """The sample of a whole picture: `image` uint8 H×W×C with the tile's size, without alpha."""
    return Sample(crop.tile, {"image": _scale_and_pad(_model_pixels(picture.pixels, manifest), crop)})


def reference_array(picture: Picture, crop: Crop, manifest: Manifest) -> NDArray[np.float32]:
    """The input `reference` of a model with a second picture: float32 C×H×W in [0, 1], with the tile's size."""
    spec = manifest.input("reference")
    channels = 3 if spec is None else int(spec.shape[1])
    image = _scale_and_pad(to_channels(to_8_bits(picture.pixels), channels), crop)
    planes: NDArray[np.float32] = np.ascontiguousarray(image.transpose(2, 0, 1), np.float32) / np.float32(255)
    return planes


def _scale_and_pad(image: NDArray[np.uint8], crop: Crop) -> NDArray[np.uint8]:
    """Scale a whole picture with Pillow's bicubic filter, as in the training of such models, and pad it to the tile."""
    if crop.scaled != Size(*image.shape[:2]):
        scaled = Image.fromarray(image.squeeze(2) if image.shape[2] == 1 else image)
        width_height = (crop.scaled.width, crop.scaled.height)
        image = np.asarray(scaled.resize(width_height, Image.Resampling.BICUBIC)).reshape(*crop.scaled, -1)
    return _pad_to_tile(image, crop)


def _model_pixels(pixels: Pixels, manifest: Manifest) -> NDArray[np.uint8]:
    return to_channels(to_8_bits(pixels), manifest.image_channels)


def _scale_image(image: NDArray[np.uint8], size: Size) -> NDArray[np.uint8]:
    if Size(*image.shape[:2]) == size:
        return image
    shrinks = image.shape[0] >= size.height and image.shape[1] >= size.width
    how = cv2.INTER_AREA if shrinks else cv2.INTER_CUBIC
    scaled: Any = cv2.resize(image, (size.width, size.height), interpolation=how)
    return np.asarray(scaled, np.uint8).reshape(*size, -1)


def _scale_mask_down(holes: Any, size: Size) -> Any:
    """Scale a mask down by maximum, first its rows, then its columns."""
    if Size(*holes.shape) == size:
        return holes
    return _scale_rows_by_maximum(_scale_rows_by_maximum(holes, size.height).T, size.width).T


def _scale_rows_by_maximum(holes: Any, height: int) -> Any:
    """Scale to `height` rows, each the maximum of all source rows that it overlaps."""
    have = holes.shape[0]
    first = np.arange(height) * have // height
    last = -(-np.arange(1, height + 1) * have // height) - 1
    scaled = np.ascontiguousarray(holes[first])
    for step in range(1, int((last - first).max()) + 1):
        np.maximum(scaled, holes[np.minimum(first + step, last)], out=scaled)
    return scaled


def _hide_masked(image: NDArray[np.uint8], holes: Any) -> NDArray[np.uint8]:
    """Replace masked pixels by the mean of the others, for a model without a mask input."""
    kept = image[holes == 0]
    mean = kept.mean(axis=0) if kept.size else np.full(image.shape[2], 127.5)
    return np.where(holes[:, :, None] == 0, image, np.rint(mean).astype(np.uint8))


def _pad_to_tile(array: NDArray[np.uint8], crop: Crop, border: int = cv2.BORDER_REFLECT_101) -> NDArray[np.uint8]:
    """Place an array in the tile and fill the rest by reflection at its edges; always contiguous.

    border: OpenCV's kind of reflection, which repeats the pixel at the edge or does not.
    """
    tile, top, left = crop.tile, crop.below, crop.right_of
    bottom, right = tile.height - array.shape[0] - top, tile.width - array.shape[1] - left
    if top or left or bottom or right:
        padded: Any = cv2.copyMakeBorder(array, top, bottom, left, right, border)
        array = padded.reshape(*tile, *array.shape[2:])
    return np.ascontiguousarray(array)
