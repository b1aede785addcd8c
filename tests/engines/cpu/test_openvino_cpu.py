"""OpenVINO computes in bf16 only where the outputs pass the model's bar, and stores that decision."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from engines.base import BatchShape, blank_feed
from engines.cpu.openvino_cpu import OpenVinoEngine
from engines.errors import EngineDead, EngineFailed, EngineUnavailable
from engines.manifest import read_manifest
from engines.onnxrt import OnnxRuntimeEngine
from engines.parity.comparison import compare
from engines.parity.probes import probe_feeds
from tests.engines.conftest import conv_graph, serialised
from tests.engines.cpu.openvino_engines import needs_bf16, open_engine
from tests.serving.waiting import wait_until

ROOT = Path(__file__).parents[3]


def decisions(cache: Path) -> list[Path]:
    return sorted((cache / "precision").glob("*.json"))


@needs_bf16
def test_bf16_is_used_where_the_bar_holds(publish, tmp_path):
    directory = publish(onnx_model=conv_graph(), parity={"bar_db": 40, "cases": []})
    engine = open_engine(directory, tmp_path)
    assert engine.precision == "bf16"
    assert engine.note.startswith("bf16 against fp32: ")
    assert engine.note.endswith("the bar is 40 dB")
    reference = OnnxRuntimeEngine(directory, engine.manifest, threads=1)
    verdict = compare(
        lambda feed: reference.infer(feed)["output"],
        lambda feed: engine.infer(feed)["output"],
        probe_feeds(engine.manifest),
    )
    assert verdict.passes(40)
    assert not verdict.passes(90)  # it does compute in bf16: fp32 would be far closer


@needs_bf16
def test_bf16_is_refused_where_it_falls_under_the_bar(publish, tmp_path):
    directory = publish(onnx_model=conv_graph(gain=40), parity={"bar_db": 60, "cases": []})
    engine = open_engine(directory, tmp_path)
    assert engine.precision == "fp32"
    assert engine.note.startswith("bf16 refused: ")


@needs_bf16
def test_decision_is_taken_once_and_then_remembered(publish, tmp_path):
    directory = publish(onnx_model=conv_graph(), parity={"bar_db": 40, "cases": []})
    open_engine(directory, tmp_path)
    (path,) = decisions(tmp_path)
    path.write_text(json.dumps({"precision": "fp32", "why": "remembered"}))
    engine = open_engine(directory, tmp_path)
    assert (engine.precision, engine.note) == ("fp32", "remembered")


@needs_bf16
@pytest.mark.parametrize("content", ["{", '{"precision": "int4", "why": "from the future"}'])
def test_damaged_or_unknown_decision_is_taken_anew(publish, tmp_path, content):
    directory = publish(onnx_model=conv_graph(), parity={"bar_db": 40, "cases": []})
    open_engine(directory, tmp_path)
    (path,) = decisions(tmp_path)
    path.write_text(content)
    assert open_engine(directory, tmp_path).precision == "bf16"
    assert json.loads(path.read_text())["precision"] == "bf16"


@needs_bf16
def test_another_bar_is_another_decision(publish, tmp_path):
    open_engine(publish(onnx_model=conv_graph(), parity={"bar_db": 40, "cases": []}), tmp_path)
    engine = open_engine(publish(onnx_model=conv_graph(), parity={"bar_db": 120, "cases": []}), tmp_path)
    assert engine.precision == "fp32"
    assert len(decisions(tmp_path)) == 2


def test_damaged_compile_cache_is_passed_by(publish, tmp_path):
    directory = publish(onnx_model=conv_graph())
    feed = blank_feed(read_manifest(directory), BatchShape(1, 16, 16))
    wanted = open_engine(directory, tmp_path).infer(feed)["output"].copy()
    blobs = list((tmp_path / "openvino").rglob("*.blob"))
    assert blobs
    for blob in blobs:
        blob.write_bytes(b"\0" * 64)
    np.testing.assert_array_equal(open_engine(directory, tmp_path).infer(feed)["output"], wanted)
    for blob in blobs:
        blob.write_bytes(b"")
    np.testing.assert_array_equal(open_engine(directory, tmp_path).infer(feed)["output"], wanted)


def test_cache_directory_that_cannot_be_made_is_passed_by(publish, tmp_path):
    (tmp_path / "file").write_text("no directory")
    engine = open_engine(publish(onnx_model=conv_graph()), tmp_path / "file")
    assert engine.infer(blank_feed(engine.manifest, BatchShape(1, 16, 16)))["output"].shape == (1, 3, 16, 16)


def test_unparsable_graph_is_unavailable_by_name(publish, tmp_path):
    with pytest.raises(EngineUnavailable, match="openvino cannot compile tiny/1: Unable to read the model") as refused:
        open_engine(publish(onnx_model=b"not a graph"), tmp_path)
    assert ".cpp" not in str(refused.value), "lines of OpenVINO's sources say nothing to people"


def test_missing_library_is_named(publish, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(EngineUnavailable, match="pip install openvino"):
        open_engine(publish(onnx_model=conv_graph()), tmp_path)


def test_size_that_the_graph_does_not_take_fails_the_batch_only(publish, tmp_path):
    directory = publish(onnx_model=conv_graph(size=(16, 16)))
    engine = open_engine(directory, tmp_path)
    with pytest.raises(EngineFailed, match="tiny/1 on openvino"):
        engine.infer(blank_feed(engine.manifest, BatchShape(1, 32, 32)))
    assert engine.infer(blank_feed(engine.manifest, BatchShape(1, 16, 16)))["output"].shape == (1, 3, 16, 16)


@pytest.mark.parametrize("rows", [1, 2, 3, 8])
def test_halves_of_a_batch_side_by_side_give_what_one_after_another_gives(publish, tmp_path, rows):
    directory = publish(onnx_model=conv_graph())
    alone, engine = (
        OpenVinoEngine(directory, read_manifest(directory), threads=threads, cache_dir=tmp_path) for threads in (1, 2)
    )
    feed = dict(blank_feed(engine.manifest, BatchShape(rows, 16, 16)))
    feed["image"] = np.random.default_rng(0).random(feed["image"].shape, np.float32)
    np.testing.assert_array_equal(engine.infer(feed)["output"], alone.infer(feed)["output"])


def test_batch_whose_halves_fail_leaves_nothing_running_and_the_engine_usable(publish, tmp_path):
    directory = publish(onnx_model=conv_graph(size=(16, 16)))
    engine = OpenVinoEngine(directory, read_manifest(directory), threads=2, cache_dir=tmp_path)
    for _ in range(2):
        with pytest.raises(EngineFailed, match="tiny/1 on openvino"):
            engine.infer(blank_feed(engine.manifest, BatchShape(5, 32, 32)))
        assert engine.infer(blank_feed(engine.manifest, BatchShape(5, 16, 16)))["output"].shape == (5, 3, 16, 16)


def lane_engine(publish, tmp_path, **changes):
    directory = publish(onnx_model=conv_graph(**changes))
    return OpenVinoEngine(directory, read_manifest(directory), threads=2, cache_dir=tmp_path)


def random_feed(engine, rows, seed):
    feed = dict(blank_feed(engine.manifest, BatchShape(rows, 16, 16)))
    feed["image"] = np.random.default_rng(seed).random(feed["image"].shape, np.float32)
    return feed


def test_lanes_go_their_own_way_and_give_what_the_whole_engine_gives(publish, tmp_path):
    engine = lane_engine(publish, tmp_path)
    assert engine.lanes == 2
    feeds = {lane: random_feed(engine, rows, lane) for lane, rows in ((0, 3), (1, 1))}
    wanted = {lane: np.array(engine.infer(feed)["output"]) for lane, feed in feeds.items()}
    for _ in range(3):
        told = {lane: threading.Event() for lane in feeds}
        for lane, feed in feeds.items():
            engine.begin(lane, feed, told[lane].set)
        for lane in (1, 0):
            assert told[lane].wait(20)
            assert engine.ended(lane)
            np.testing.assert_array_equal(engine.end(lane)["output"], wanted[lane])


def test_one_thread_has_no_lanes(publish, tmp_path):
    assert open_engine(publish(onnx_model=conv_graph()), tmp_path).lanes == 1


def test_batch_that_fails_on_a_lane_leaves_it_free_and_the_other_computing(publish, tmp_path):
    engine = lane_engine(publish, tmp_path, size=(16, 16))
    good = random_feed(engine, 2, 0)
    engine.begin(1, good, lambda: None)
    with pytest.raises(EngineFailed, match="tiny/1 on openvino"):
        engine.begin(0, blank_feed(engine.manifest, BatchShape(1, 32, 32)), lambda: None)
    engine.begin(0, good, lambda: None)
    np.testing.assert_array_equal(engine.end(0)["output"], engine.end(1)["output"])
    engine.close()
    with pytest.raises(EngineDead, match="is closed"):
        engine.begin(0, good, lambda: None)


def doubling_graph():
    """Make a graph that adds a picture's upper 16 rows to the picture; other heights fail only when it is computed."""
    channels = {"image": 3, "mask": 1, "output": 3}
    image, mask, output = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", count, "height", "width"])
        for name, count in channels.items()
    )
    nodes = [
        helper.make_node("Slice", ["image", "starts", "ends", "axes"], ["upper"]),
        helper.make_node("Add", ["image", "upper"], ["doubled"]),
        helper.make_node("Add", ["doubled", "mask"], ["output"]),
    ]
    ranges = {name: np.array([at], np.int64) for name, at in (("starts", 0), ("ends", 16), ("axes", 2))}
    return serialised(nodes, [image, mask], output, ranges)


def test_batch_that_fails_while_it_computes_has_ended_and_says_so(publish, tmp_path):
    directory = publish(onnx_model=doubling_graph())
    engine = OpenVinoEngine(directory, read_manifest(directory), threads=2, cache_dir=tmp_path)
    engine.begin(1, random_feed(engine, 1, 0), lambda: None)
    engine.begin(0, blank_feed(engine.manifest, BatchShape(1, 24, 24)), lambda: None)
    wait_until(lambda: engine.ended(0))
    with pytest.raises(EngineFailed, match="tiny/1 on openvino"):
        engine.end(0)
    assert engine.end(1)["output"].shape == (1, 3, 16, 16)
    engine.begin(0, random_feed(engine, 1, 0), lambda: None)
    assert np.isfinite(engine.end(0)["output"]).all()


def test_signals_reach_the_process_when_an_engine_outlived_the_one_before_it(publish, tmp_path):
    directory = publish(onnx_model=conv_graph())
    program = f"""
import os, signal
from pathlib import Path
from engines.manifest import read_manifest
from engines.cpu.openvino_cpu import OpenVinoEngine

directory = Path({str(directory)!r})
first, second = (
    OpenVinoEngine(directory, read_manifest(directory), threads=threads, cache_dir=Path({str(tmp_path)!r}))
    for threads in (1, 2)
)
first.close()
del first
second.close()
del second
signal.signal(signal.SIGTERM, lambda *_: print("told"))
os.kill(os.getpid(), signal.SIGTERM)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "told\n"), done.stderr


def test_openvino_reports_to_nobody_and_leaves_nothing_in_the_home(tmp_path):
    program = """
import sys
found = []
sys.addaudithook(lambda event, _: event in ("os.fork", "socket.connect") and found.append(event))
from engines.cpu.openvino_compiler import openvino_core
openvino_core()
print(found)
"""
    environment = {name: value for name, value in os.environ.items() if name != "CI"}  # turns its telemetry off
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**environment, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
    assert list(tmp_path.iterdir()) == []
