"""Plans built ahead of time for other hosts' GPUs are found by the engine on such a host."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.cuda.api import Cuda, Device
from engines.errors import EngineUnavailable
from engines.manifest import read_manifest
from engines.trt.build import BuildOptions, ComputeCapability
from engines.trt.engine import TrtEngine
from engines.trt.library import MODULES, load_tensorrt
from engines.trt.plans import build_ahead, plan_facts
from tests.engines.conftest import conv_graph
from tests.fakes.cuda import FakeRuntime
from tests.fakes.tensor_rt import FakeTensorRt

ADA = ComputeCapability(8, 9)


@pytest.fixture
def directory(publish) -> Path:
    return publish(onnx_model=conv_graph())


def test_rtx_plan_that_was_built_ahead_is_used_on_any_gpu_of_its_generation(directory, tmp_path):
    device = FakeRuntime()
    trt = FakeTensorRt(device, "rtx")
    manifest, options = read_manifest(directory), BuildOptions(max_batch=4)
    assert build_ahead(trt.library(), directory, manifest, options, tmp_path, ADA)
    assert not build_ahead(trt.library(), directory, manifest, options, tmp_path, ADA)
    TrtEngine(directory, manifest, library=trt.library(), cuda=Cuda(device), cache_dir=tmp_path, options=options)
    assert trt.builds == 1
    assert build_ahead(trt.library(), directory, manifest, options, tmp_path, ComputeCapability(12, 0))
    assert trt.builds == 2


def test_rtx_plan_depends_on_the_generation_alone_and_others_on_the_very_gpu_and_driver(directory):
    manifest, options = read_manifest(directory), BuildOptions()
    here, there = Device("NVIDIA L4", (8, 9), 12080, 1), Device("NVIDIA L40", (8, 9), 13000, 1)
    for style, same in (("rtx", True), ("10", False), ("8.6", False)):
        library = FakeTensorRt(FakeRuntime(), style).library()
        assert (plan_facts(manifest, library, here, options) == plan_facts(manifest, library, there, options)) is same


def test_other_libraries_build_for_the_gpu_that_is_here_only(directory, tmp_path):
    library = FakeTensorRt(FakeRuntime(), "10").library()
    with pytest.raises(EngineUnavailable, match=r"TensorRT 10\.9\.0 builds for this host's GPU only"):
        build_ahead(library, directory, read_manifest(directory), BuildOptions(), tmp_path, ADA)


def test_real_plan_is_built_ahead_and_kept(directory, tmp_path):
    try:
        library = load_tensorrt(MODULES[2:])
    except EngineUnavailable as error:
        pytest.skip(str(error))
    assert build_ahead(library, directory, read_manifest(directory), BuildOptions(max_batch=2), tmp_path, ADA)
    (plan,) = (tmp_path / "plans").iterdir()
    assert plan.stat().st_size > 1000
    assert not build_ahead(library, directory, read_manifest(directory), BuildOptions(max_batch=2), tmp_path, ADA)
