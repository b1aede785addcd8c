"""The fake engine computes a recognisable result, counts its batches, and injects faults."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from engines.base import BatchShape
from engines.errors import EngineDead, EngineFailed
from engines.fake import FakeEngine, FaultFile, Hang, NotANumber, Raise


def inpaint_feed(batch: int = 1) -> dict[str, np.ndarray]:
    image = np.zeros((batch, 3, 16, 16), np.float32)
    image[:, 0] = 0.25
    image[:, :, 8:] = 1
    mask = np.zeros((batch, 1, 16, 16), np.float32)
    mask[:, :, 8:] = 1
    return {"image": image, "mask": mask}


def test_hole_becomes_the_mean_of_the_kept_pixels_which_stay(make_manifest):
    feed = inpaint_feed()
    output = FakeEngine(make_manifest()).infer(feed)["output"]
    np.testing.assert_array_equal(output[:, :, :8], feed["image"][:, :, :8])
    assert output[0, :, 8:].reshape(3, -1).T.tolist() == [[0.25, 0.0, 0.0]] * 128


def test_full_hole_becomes_grey(make_manifest):
    feed = inpaint_feed()
    feed["mask"][:] = 1
    assert (FakeEngine(make_manifest()).infer(feed)["output"] == 0.5).all()


def test_translation_is_the_negative_with_channels_repeated_or_cut(make_manifest):
    pixels = ["batch", 1, "height", "width"]
    manifest = make_manifest("translate", inputs=[{"name": "image", "dtype": "float32", "shape": pixels}])
    image = np.linspace(0, 1, 256, dtype=np.float32).reshape(1, 1, 16, 16)
    output = FakeEngine(manifest).infer({"image": image})["output"]
    assert output.shape == (1, 3, 16, 16)
    np.testing.assert_array_equal(output, np.repeat(1 - image, 3, axis=1))


def test_generation_follows_the_latent(make_manifest):
    manifest = make_manifest("generate", size={"kind": "fixed", "height": 8, "width": 24})
    latent = np.stack([np.full(8, -9), np.full(8, 9)]).astype(np.float32)
    output = FakeEngine(manifest).infer({"latent": latent})["output"]
    assert output.shape == (2, 3, 8, 24)
    np.testing.assert_allclose(output[:, 0, 0, 0], [0, 1], atol=1e-6)


def test_executed_batches_and_samples_are_counted(make_manifest):
    engine = FakeEngine(make_manifest())
    for batch in (1, 4):
        engine.infer(inpaint_feed(batch))
    assert (engine.batches, engine.samples) == (2, 5)


def test_refused_feeds_are_not_counted(make_manifest):
    engine = FakeEngine(make_manifest())
    with pytest.raises(EngineFailed):
        engine.infer({})
    assert engine.batches == 0


def test_a_batch_takes_as_long_as_it_is_told(make_manifest):
    waits: list[float] = []
    FakeEngine(make_manifest(), batch_s=0.25, sleep=waits.append).infer(inpaint_feed())
    assert waits == [0.25]


def test_a_warm_up_runs_its_shapes_but_takes_no_time(make_manifest):
    waits: list[float] = []
    engine = FakeEngine(make_manifest(), batch_s=0.25, sleep=waits.append)
    engine.warm_up([BatchShape(1, 16, 16), BatchShape(4, 16, 16)])
    assert (engine.samples, waits) == (5, [])
    engine.infer(inpaint_feed())
    assert waits == [0.25]


@pytest.mark.parametrize("error", [EngineFailed("bad batch"), ValueError("surprise")], ids=["ours", "theirs"])
def test_a_batch_that_raises_leaves_the_engine_usable(make_manifest, error):
    faults = iter([Raise(error), None])
    engine = FakeEngine(make_manifest(), fault=lambda _: next(faults))
    with pytest.raises(type(error), match=str(error)):
        engine.infer(inpaint_feed())
    assert engine.infer(inpaint_feed())["output"].shape == (1, 3, 16, 16)
    assert engine.batches == 2


def test_an_engine_that_died_stays_dead(make_manifest):
    faults = iter([Raise(EngineDead("device lost"))])
    engine = FakeEngine(make_manifest(), fault=lambda _: next(faults))
    with pytest.raises(EngineDead, match="device lost"):
        engine.infer(inpaint_feed())
    with pytest.raises(EngineDead, match="died; load a new engine"):
        engine.infer(inpaint_feed())


def test_a_hung_batch_returns_when_it_is_let_go(make_manifest):
    release = threading.Event()
    engine = FakeEngine(make_manifest(), fault=lambda _: Hang(release))
    outputs: list[object] = []
    thread = threading.Thread(target=lambda: outputs.append(engine.infer(inpaint_feed())))
    thread.start()
    thread.join(0.05)
    assert thread.is_alive()
    release.set()
    thread.join(10)
    assert len(outputs) == 1


def test_faulty_output_is_not_a_number(make_manifest):
    engine = FakeEngine(make_manifest(), fault=lambda _: NotANumber())
    assert np.isnan(engine.infer(inpaint_feed())["output"]).all()


def test_fixed_size_is_obeyed(make_manifest):
    engine = FakeEngine(make_manifest(size={"kind": "fixed", "height": 16, "width": 32}))
    with pytest.raises(EngineFailed, match="tiles of 16×16; the model takes 32×16"):
        engine.infer(inpaint_feed())


LATENT_6 = {"name": "latent", "dtype": "float32", "shape": ["batch", 6]}
IMAGE, MASK = (
    {"name": name, "dtype": "float32", "shape": ["batch", channels, "height", "width"]}
    for name, channels in (("image", 3), ("mask", 1))
)


def test_different_latents_fill_the_same_hole_differently_and_keep_the_rest(make_manifest):
    engine = FakeEngine(make_manifest(inputs=[IMAGE, MASK, LATENT_6]))
    feed = inpaint_feed(2)
    latent = np.zeros((2, 6), np.float32)
    latent[1, 5] = 1
    output = engine.infer({**feed, "latent": latent})["output"]
    np.testing.assert_array_equal(output[:, :, :8], feed["image"][:, :, :8])
    assert (output[0, :, 8:] != output[1, :, 8:]).any()


def test_samples_of_a_row_equal_rows_of_the_same_latents(make_manifest):
    together = FakeEngine(
        make_manifest(
            inputs=[IMAGE, MASK, {**LATENT_6, "shape": ["batch", "samples", 6]}],
            output={**IMAGE, "name": "output", "shape": ["batch", "samples", 3, "height", "width"]},
        )
    )
    alone = FakeEngine(make_manifest(inputs=[IMAGE, MASK, LATENT_6]))
    latents = np.random.default_rng(0).standard_normal((2, 4, 6), np.float32)
    output = together.infer({**inpaint_feed(2), "latent": latents})["output"]
    assert output.shape == (2, 4, 3, 16, 16)
    for sample in range(4):
        latent = np.ascontiguousarray(latents[:, sample])
        wanted = alone.infer({**inpaint_feed(2), "latent": latent})["output"]
        np.testing.assert_array_equal(output[:, sample], wanted)
    with pytest.raises(EngineFailed, match="no samples"):
        together.infer({**inpaint_feed(2), "latent": latents[:, :0]})
    with pytest.raises(EngineFailed, match="latent is float32"):
        together.infer({**inpaint_feed(2), "latent": latents[0]})


def test_id_maps_come_back_exactly(make_manifest):
    def of(name: str, dtype: str) -> dict[str, object]:
        return {"name": name, "dtype": dtype, "shape": ["batch", 1, "height", "width"]}

    engine = FakeEngine(make_manifest("translate", inputs=[of("label", "uint8"), of("instance", "int32")]))
    rng = np.random.default_rng(0)
    label = rng.integers(0, 256, (1, 1, 16, 16), np.uint8)
    instance = rng.integers(0, 65536, (1, 1, 16, 16), np.int32)
    planes = np.rint(engine.infer({"label": label, "instance": instance})["output"][0] * 255).astype(int)
    np.testing.assert_array_equal(planes[0], label[0, 0])
    np.testing.assert_array_equal(planes[1] + 256 * planes[2], instance[0, 0])


def test_a_model_without_a_mask_fills_its_own_hole(make_manifest):
    size = {"kind": "fixed", "height": 16, "width": 16, "fit": "crop", "hole": [4, 5, 12, 13]}
    image = np.zeros((1, 3, 16, 16), np.float32)
    image[:, :, 4:12, 5:13] = 1
    assert not FakeEngine(make_manifest(inputs=[IMAGE], size=size)).infer({"image": image})["output"].any()
    np.testing.assert_array_equal(FakeEngine(make_manifest(inputs=[IMAGE])).infer({"image": image})["output"], image)
    with pytest.raises(ValueError, match="must lie inside the tile"):
        make_manifest(size={**size, "hole": [4, 5, 17, 13]})


@pytest.mark.parametrize(("word", "error"), [("raise", EngineFailed), ("die", EngineDead)])
def test_a_fault_file_is_taken_by_one_batch(tmp_path: Path, word: str, error: type[Exception]) -> None:
    fault = FaultFile(tmp_path / "fault")
    assert fault({}) is None
    (tmp_path / "fault").write_text(word)
    taken = fault({})
    assert isinstance(taken, Raise)
    assert isinstance(taken.error, error)
    assert fault({}) is None


def test_a_fault_file_can_ask_for_nan_and_for_a_hang(tmp_path: Path) -> None:
    for word, kind in (("nan", NotANumber), ("hang", Hang)):
        (tmp_path / "fault").write_text(word)
        assert isinstance(FaultFile(tmp_path / "fault")({}), kind)
