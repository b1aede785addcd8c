"""The fake engine computes something recognisable, counts what it ran, and fails as it is told to."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from engines.errors import EngineDead, EngineFailed
from engines.fake import FakeEngine, Hang, NotANumber, Raise


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
