"""Parity is decided by the worst input; an output with NaN or inf never passes."""

from __future__ import annotations

import numpy as np
import pytest

from engines.base import Array, Feed
from engines.parity.comparison import Verdict, compare, psnr_db, shown_levels
from engines.parity.probes import probe_feeds


def feed(value: float) -> Feed:
    return {"image": np.full((1, 3, 4, 4), value, np.float32)}


def same(given: Feed) -> Array:
    return given["image"]


def test_identical_outputs_have_no_noise_and_pass_any_bar():
    verdict = compare(same, same, [("a", feed(0.1)), ("b", feed(0.2))])
    assert verdict.psnr_db is None
    assert verdict.passes(1000)
    assert str(verdict) == "identical"


def test_psnr_of_a_known_error():
    assert psnr_db(np.zeros(4), np.full(4, 0.1)) == pytest.approx(20)


def test_the_worst_input_counts():
    verdict = compare(same, lambda f: f["image"] * 1.1, [("dim", feed(0.1)), ("bright", feed(1.0)), ("dark", feed(0))])
    assert verdict.inputs == "bright"
    assert verdict.psnr_db == pytest.approx(20, abs=0.01)
    assert verdict.passes(19.9)
    assert not verdict.passes(20.1)
    assert str(verdict) == "20.0 dB on bright inputs"


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("side", ["reference", "candidate"])
def test_what_is_not_finite_never_passes(value, side):
    def broken(_feed: Feed) -> Array:
        return np.full((1, 3, 4, 4), value, np.float32)

    verdict = compare(*((broken, same) if side == "reference" else (same, broken)), [("full", feed(0.5))])  # type: ignore[call-arg]
    assert not verdict.passes(0)
    assert str(verdict) == "NaN or inf on full inputs"


def test_reference_buffer_may_be_overwritten_by_the_next_run():
    buffer = np.zeros((1, 3, 4, 4), np.float32)

    def into_buffer(given: Feed) -> Array:
        buffer[:] = given["image"] + 0.1
        return buffer

    def shifted(given: Feed) -> Array:
        into_buffer({"image": given["image"] + 7})
        return given["image"]

    assert compare(into_buffer, shifted, [("a", feed(0.5))]).psnr_db == pytest.approx(20, abs=0.01)


def test_verdict_without_a_measurement_needs_no_bar():
    assert Verdict(None, finite=True, inputs="any").passes(99)


def test_probes_of_an_inpainting_model_have_ordinary_empty_and_full_masks(make_manifest):
    feeds = dict(probe_feeds(make_manifest()))
    assert list(feeds) == ["ordinary", "empty", "full"]
    coverage = {name: float(feed["mask"].mean()) for name, feed in feeds.items()}
    assert coverage["empty"] == 0
    assert coverage["full"] == 1
    assert 0.1 < coverage["ordinary"] < 0.5
    for probe in feeds.values():
        assert probe["image"].shape == (2, 3, 16, 16)
        assert probe["image"].min() >= 0
        assert probe["image"].max() <= 1
        assert probe["image"].std() > 0.05


def test_probes_are_the_same_every_time(make_manifest):
    first, second = (dict(probe_feeds(make_manifest()))["ordinary"] for _ in range(2))
    np.testing.assert_array_equal(first["image"], second["image"])


def test_probes_fill_every_tensor_of_the_contract(make_manifest):
    plane = ["batch", 1, "height", "width"]
    manifest = make_manifest(
        "translate",
        max_batch=1,
        inputs=[
            {"name": "label", "dtype": "uint8", "shape": plane},
            {"name": "instance", "dtype": "int32", "shape": plane},
            {"name": "latent", "dtype": "float32", "shape": ["batch", 8]},
        ],
    )
    ((name, probe),) = probe_feeds(manifest)
    assert name == "ordinary"
    assert {key: (str(array.dtype), array.shape) for key, array in probe.items()} == {
        "label": ("uint8", (1, 1, 16, 16)),
        "instance": ("int32", (1, 1, 16, 16)),
        "latent": ("float32", (1, 8)),
    }


def test_levels_count_where_the_mask_says_fill_and_what_can_be_shown():
    reference, output = np.full((2, 1, 3, 4, 4), 0.5, np.float32)
    mask = np.zeros((1, 1, 4, 4), np.float32)
    mask[..., :2] = 1
    output[..., 0] += 2 / 255
    output[..., 3] += 9 / 255  # outside the mask, where the picture's own pixels are shown
    reference[..., 1], output[..., 1] = 1, 1.5  # both are shown as white
    assert shown_levels({"mask": mask}, reference, output) == pytest.approx(2, abs=1e-4)
    assert shown_levels({"mask": np.zeros_like(mask)}, reference, output) == 0
    assert shown_levels({}, reference, output) == pytest.approx(9, abs=1e-4)
    samples = np.stack([reference, output], 1)  # N×S×C×H×W
    assert shown_levels({"mask": mask}, samples, samples[:, ::-1]) == pytest.approx(2, abs=1e-4)


def test_most_levels_of_all_inputs_are_told_beside_the_worst_psnr():
    def spoilt(given: Feed) -> Array:
        output = given["image"].copy()
        output[..., 0, 0] += 3 / 255 if output[0, 0, 0, 0] else 0
        return output if output[0, 0, 0, 0] else output + 2 / 255

    verdict = compare(same, spoilt, [("one pixel", feed(0.5)), ("all over", feed(0.0))])
    assert verdict.inputs == "all over"
    assert verdict.levels == pytest.approx(3, abs=1e-3)
