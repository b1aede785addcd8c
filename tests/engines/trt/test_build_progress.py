"""The progress of a build, computed from the nested phases that TensorRT reports."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from engines.errors import EngineUnavailable, LoadStopped
from engines.manifest import read_manifest
from engines.trt.build import BuildOptions, ComputeCapability, build_plan
from engines.trt.build_progress import BuildProgress, watch_build
from engines.trt.library import MODULES, TensorRt, load_tensorrt
from tests.engines.conftest import conv_graph


def test_steps_of_an_inner_phase_count_as_parts_of_one_step_of_the_outer():
    told: list[int] = []
    progress = BuildProgress(told.append)
    progress.begin("build", None, 4)
    progress.begin("tactics", "build", 2)
    progress.complete_step("tactics", 0)
    progress.complete_step("tactics", 1)
    progress.end("tactics")
    progress.complete_step("build", 0)
    progress.complete_step("build", 3)
    assert told == [12, 25, 100]


def test_the_percentage_never_falls_and_strange_reports_are_no_error():
    told: list[int] = []
    progress = BuildProgress(told.append)
    progress.begin("first", None, 2)
    progress.complete_step("first", 1)
    progress.begin("second", "gone", 0)
    progress.complete_step("second", 5)
    progress.complete_step("unknown", 0)
    progress.end("unknown")
    assert told == [100]


def test_a_library_that_does_not_report_is_not_watched():
    config = SimpleNamespace()
    assert watch_build(TensorRt(SimpleNamespace(), False, (8, 6, 0), None), config, print) is None
    assert vars(config) == {}


def test_a_build_is_cancelled_when_the_process_ends():
    class PlainMonitor:
        def __init__(self) -> None: ...

    def stop(_text: str) -> None:
        raise LoadStopped("the process ends")

    config, library = SimpleNamespace(), SimpleNamespace(IProgressMonitor=PlainMonitor)
    monitor: Any = watch_build(TensorRt(library, False, (10, 0, 0), None), config, stop)
    monitor.phase_start("build", None, 2)
    assert monitor.step_complete("build", 0) is False


def test_a_real_build_reports(publish):
    try:
        library = load_tensorrt(MODULES[2:])
    except EngineUnavailable as error:
        pytest.skip(str(error))
    told: list[str] = []
    directory = publish(onnx_model=conv_graph())
    options = BuildOptions(max_batch=4, targets=(ComputeCapability(8, 9),), notify=told.append)
    build_plan(library, directory, read_manifest(directory), options)
    assert told[0] == f"building its plan with {library.name}"
    assert len(told) > 2
    assert told[-1].startswith(f"building its plan with {library.name}, ")
    assert told[-1].endswith(" %")
