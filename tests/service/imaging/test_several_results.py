"""A sample's random numbers depend on its seed alone; without any, samples see the picture turned."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from engines.manifest import Manifest, TensorSpec
from service.core.batch_rows import Sample
from service.core.pictures import Size
from service.imaging.several_results import bytes_of_rows, draw_latent, is_diverse, rows_of_results, tiles_of_result
from tests.serving.tensor_specs import image, latent, mask, output

MakeManifest = Callable[..., Manifest]
ROWS = [Sample(Size(64, 64), {"image": np.full((64, 64, 3), value, np.uint8)}) for value in (1, 2)]


def manifest_of(make: MakeManifest, *, together: bool) -> Manifest:
    return make("m", "inpaint", inputs=[image(), mask(), latent(together=together)], output=output(together=together))


def test_a_latent_is_standard_normal() -> None:
    drawn = draw_latent(1, 0, 20_000)
    assert drawn.dtype == np.float32
    assert abs(float(drawn.mean())) < 0.03
    assert float(drawn.std()) == pytest.approx(1, abs=0.03)
    assert float((np.abs(drawn) < 1).mean()) == pytest.approx(0.683, abs=0.01)


def test_seed_and_index_decide_alone() -> None:
    np.testing.assert_array_equal(draw_latent(7, 3, 16), draw_latent(7, 3, 16))
    drawn = [
        draw_latent(seed, index, 16).tobytes() for seed in (0, 1, 2**32, 2**32 + 1, 2**63 - 1) for index in range(16)
    ]
    assert len(set(drawn)) == len(drawn)


def test_the_numbers_of_a_seed_are_those_of_every_release() -> None:
    np.testing.assert_allclose(draw_latent(42, 1, 3), [1.65646, 0.756729, 0.160265], atol=1e-5)


def test_a_model_without_latents_gets_its_rows_unchanged(fake_manifest: MakeManifest) -> None:
    assert rows_of_results(ROWS, fake_manifest("m", "inpaint"), [(1, 0)]) == ROWS


def test_without_latents_each_result_sees_the_rows_turned_and_gets_upright_tiles(fake_manifest: MakeManifest) -> None:
    manifest = fake_manifest("m", "inpaint")
    pictures = [np.random.default_rng(seed).integers(0, 256, (64, 64, 3), np.uint8) for seed in (1, 2)]
    rows = rows_of_results([Sample(Size(64, 64), {"image": one}) for one in pictures], manifest, [(0, 0)] * 3)
    assert len({row.arrays["image"].tobytes() for row in rows}) == 6
    computed = [row.arrays["image"] for row in rows]
    for index in range(3):
        np.testing.assert_array_equal(tiles_of_result(computed, manifest, 3, index), pictures)


@pytest.mark.parametrize("inputs", [[image(), mask()], [image(), mask(), latent()]], ids=["turned", "drawn"])
@pytest.mark.parametrize("count", [1, 8])
def test_the_memory_of_rows_and_tiles_is_that_of_their_arrays(
    count: int, inputs: list[dict[str, object]], fake_manifest: MakeManifest
) -> None:
    manifest = fake_manifest("m", "inpaint", inputs=inputs)
    tile = Size(64, 64)
    row = Sample(tile, {"image": np.zeros((*tile, 3), np.uint8), "mask": np.zeros(tile, np.uint8)})
    rows = rows_of_results([row], manifest, [(0, index) for index in range(count)])
    seen = {id(array): array.nbytes for one in rows for name, array in one.arrays.items() if name != "latent"}
    tiles = count * np.zeros((*tile, 3), np.uint8).nbytes
    assert bytes_of_rows(tile, manifest, count) == sum(seen.values()) + tiles


@pytest.mark.parametrize(
    ("task", "inputs", "diverse"),
    [
        ("inpaint", [image(), mask()], True),
        ("translate", [image()], False),
        ("translate", [image(), latent()], True),
    ],
)
def test_results_differ_by_random_numbers_or_in_inpainting_by_orientation(
    fake_manifest: MakeManifest, task: str, inputs: list[TensorSpec], diverse: bool
) -> None:
    assert is_diverse(fake_manifest("m", task, inputs=inputs)) == diverse


def test_every_sample_has_its_latent_and_all_its_crops_share_it(fake_manifest: MakeManifest) -> None:
    manifest = manifest_of(fake_manifest, together=False)
    rows = rows_of_results(ROWS, manifest, [(5, 0), (5, 1), (5, 2)])
    assert [int(row.arrays["image"][0, 0, 0]) for row in rows] == [1, 2, 1, 2, 1, 2]
    for position, row in enumerate(rows):
        np.testing.assert_array_equal(row.arrays["latent"], draw_latent(5, position // 2, 6))
    tiles = [np.full((1, 1, 3), number, np.uint8) for number in range(6)]
    sorted_tiles = [[int(tile[0, 0, 0]) for tile in tiles_of_result(tiles, manifest, 3, index)] for index in range(3)]
    assert sorted_tiles == [[0, 1], [2, 3], [4, 5]]


def test_a_model_with_samples_together_gets_all_latents_in_one_row(fake_manifest: MakeManifest) -> None:
    manifest = manifest_of(fake_manifest, together=True)
    rows = rows_of_results(ROWS, manifest, [(5, 0), (5, 1), (5, 2)])
    assert [row.samples for row in rows] == [3, 3]
    np.testing.assert_array_equal(rows[1].arrays["latent"], np.stack([draw_latent(5, index, 6) for index in range(3)]))
    tiles = [np.arange(first, first + 3, dtype=np.uint8).reshape(3, 1, 1, 1) for first in (0, 10)]
    sorted_tiles = [[int(tile[0, 0, 0]) for tile in tiles_of_result(tiles, manifest, 3, index)] for index in range(3)]
    assert sorted_tiles == [[0, 10], [1, 11], [2, 12]]
