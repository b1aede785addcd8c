"""uint8 samples to the tensor contract and back."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from engines.manifest import Manifest
from service.core.batch_rows import Sample
from service.core.pictures import Size
from service.devices.cpu import output_to_tiles, samples_to_inputs
from tests.serving.tensor_specs import instance, label


def test_images_become_channels_first_floats_in_the_unit_range_and_masks_zero_or_one(
    fake_manifest: Callable[..., Manifest],
) -> None:
    image = np.random.default_rng(0).integers(0, 256, (32, 64, 3), np.uint8)
    mask = np.zeros((32, 64), np.uint8)
    mask[3, 5] = 1
    sample = Sample(Size(32, 64), {"image": image, "mask": mask})
    feed = samples_to_inputs(fake_manifest("photos", "inpaint"), [sample, sample])
    assert feed["image"].shape == (2, 3, 32, 64)
    assert feed["image"].dtype == np.float32
    assert feed["image"].flags.c_contiguous
    np.testing.assert_allclose(feed["image"][1, 2, 4, 6], image[4, 6, 2] / 255, rtol=1e-6)
    assert feed["mask"].shape == (2, 1, 32, 64)
    assert feed["mask"].dtype == np.float32
    assert feed["mask"].sum() == 2


def test_latents_are_stacked_as_they_are(fake_manifest: Callable[..., Manifest]) -> None:
    latent = {"name": "latent", "dtype": "float32", "shape": ["batch", 8]}
    manifest = fake_manifest("dreams", "generate", inputs=[latent])
    feed = samples_to_inputs(manifest, [Sample(Size(64, 64), {"latent": np.arange(8.0)})])
    assert feed["latent"].shape == (1, 8)
    assert feed["latent"].dtype == np.float32


@pytest.mark.parametrize(
    ("value", "level"),
    [(-0.5, 0), (-3e38, 0), (0.0, 0), (0.4999 / 255, 0), (0.5001 / 255, 1), (1.0, 255), (7.0, 255), (3e38, 255)],
)
def test_outputs_are_clamped_and_rounded_not_truncated(value: float, level: int) -> None:
    (tile,) = output_to_tiles(np.full((1, 3, 2, 4), value, np.float32))
    assert tile is not None
    assert tile.shape == (2, 4, 3)
    assert (tile == level).all()


@pytest.mark.parametrize(("least", "most"), [(0.0, 1.0), (-0.5, 0.5), (0.5, 1.5), (-1.0, 2.0), (-1e9, 1e9)])
def test_outputs_of_any_range_are_cut_off_first_and_rounded_then(least: float, most: float) -> None:
    output = np.random.default_rng(0).uniform(least, most, (1, 3, 32, 32)).astype(np.float32)
    (tile,) = output_to_tiles(output)
    assert tile is not None
    levels = np.rint(np.clip(output[0], 0, 1) * np.float32(255)).astype(np.uint8)
    np.testing.assert_array_equal(tile, levels.transpose(1, 2, 0))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_only_the_row_that_is_not_finite_is_lost(bad: float) -> None:
    output = np.zeros((2, 3, 2, 2), np.float32)
    output[0, 0, 0, 0] = bad
    first, second = output_to_tiles(output)
    assert first is None
    assert second is not None


def test_every_level_survives_the_way_there_and_back(fake_manifest: Callable[..., Manifest]) -> None:
    image = np.arange(256, dtype=np.uint8).reshape(16, 16, 1).repeat(3, 2)
    feed = samples_to_inputs(fake_manifest("x", "translate"), [Sample(Size(16, 16), {"image": image})])
    (tile,) = output_to_tiles(feed["image"])
    np.testing.assert_array_equal(tile, image)


def test_ids_get_a_channel_and_keep_their_type(fake_manifest: Callable[..., Manifest]) -> None:
    manifest = fake_manifest("streets", "translate", inputs=[label(35), instance()])
    ids = np.arange(16, dtype=np.int32).reshape(4, 4) + 65_520
    feed = samples_to_inputs(manifest, [Sample(Size(4, 4), {"label": ids.astype(np.uint8), "instance": ids})])
    assert (feed["label"].dtype, feed["instance"].dtype) == (np.dtype(np.uint8), np.dtype(np.int32))
    np.testing.assert_array_equal(feed["instance"], ids[None, None])


def test_a_row_of_several_samples_comes_back_as_several_tiles_or_none() -> None:
    output = np.random.default_rng(0).random((2, 4, 3, 2, 5), np.float32)
    output[1, 3, 0, 0, 0] = np.nan
    row, lost = output_to_tiles(output)
    assert lost is None
    assert row is not None
    assert row.shape == (4, 2, 5, 3)
    for sample in range(4):
        (alone,) = output_to_tiles(output[:1, sample])
        np.testing.assert_array_equal(row[sample], alone)
