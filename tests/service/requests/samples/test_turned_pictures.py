"""Several results of a model that draws no random numbers: fills of the picture turned."""

from __future__ import annotations

import base64
import io
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engines.base import Array, BatchShape, Feed
from engines.fake import FakeEngine
from service.imaging import several_results
from tests.serving.image_files import png

Files = dict[str, tuple[str, bytes, str]]
Serve = Callable[..., Any]
JSON = {"Accept": "application/json"}


def pixels(body: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(body)))


class RampEngine(FakeEngine):
    """Fills holes with a ramp that rises by a level a column and by two a row, whatever the picture."""

    def _compute(self, feed: Feed, shape: BatchShape) -> Array:
        rows, columns = np.mgrid[: shape.height, : shape.width]
        ramp = ((2 * rows + columns) / 255).astype(np.float32)
        return np.broadcast_to(ramp, (shape.batch, 3, *ramp.shape)).copy()


def test_without_random_numbers_samples_are_fills_of_the_picture_turned(
    serve: Serve, files: Files, photo: bytes, mask: bytes
) -> None:
    running = serve(RampEngine)
    with running.client() as client:
        body = client.post("/v1/inpaint", files=files, data={"samples": "8"}).json()
        alone = client.post("/v1/inpaint", files=files).content
        sidecars = [client.get(one["result_url"], headers=JSON).json() for one in body["images"]]
    results = [base64.b64decode(one["image_base64"]) for one in body["images"]]
    assert results[0] == alone
    assert len(set(results)) == 8
    assert (body["seed"], [sidecar["sample"] for sidecar in sidecars]) == (None, list(range(8)))
    known = pixels(mask) < 128
    for result in results:
        np.testing.assert_array_equal(pixels(result)[known], pixels(photo)[known])
    rises = {
        tuple(np.sign(np.median(np.diff(pixels(one).astype(int), axis=axis)[16:40, 16:40])) for axis in (0, 1))
        for one in results
    }
    assert rises == {(1, 1), (1, -1), (-1, 1), (-1, -1)}


def test_results_are_found_again_in_their_order_without_a_seed(serve: Serve, files: Files) -> None:
    with serve(RampEngine, cache_entries=10).client() as client:
        first, again = (client.post("/v1/inpaint", files=files, data={"samples": "8"}) for _ in range(2))
    assert again.json()["images"] == first.json()["images"]


def test_pictures_are_turned_and_turned_back_on_codec_threads(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def noting(turn: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any) -> Any:
            threads.append(threading.current_thread().name.rpartition("_")[0])
            return turn(*arguments)

        return noted

    for name in ("turn_row", "turn_back"):
        monkeypatch.setattr(several_results, name, noting(getattr(several_results, name)))
    hole = np.zeros((128, 128, 1), np.uint8)
    hole[60:70, 60:70] = 255
    with serve(codec_threads=2).client() as client:
        files = {"image": png(np.zeros((128, 128, 3), np.uint8)), "mask": png(hole)}
        assert client.post("/v1/inpaint", files=files, data={"samples": "3"}).status_code == 200
    assert threads == ["decode"] * 3 + ["encode"] * 3


def test_a_translation_without_random_numbers_has_one_result(serve: Serve, files: Files) -> None:
    with serve().client() as client:
        refused = client.post("/v1/translate", files={"image": files["image"]}, data={"samples": "2"})
    assert (refused.status_code, refused.json()["code"]) == (422, "not_diverse")
