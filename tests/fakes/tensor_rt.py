# ruff: noqa: N802 -- the names are those of the library that it stands for
"""A TensorRT whose plans are ONNX files and whose GPU is `FakeRuntime`: ONNX Runtime computes, in stream order.

`style` picks the API: `8.6` (weakly typed, own scratch call), `10` (strongly typed) or `rtx` (runtime configuration).
"""

from __future__ import annotations

import ctypes
from enum import IntEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from engines.trt.library import TensorRt
from tests.fakes.cuda import FakeRuntime


class Logger:
    def __init__(self) -> None:
        self.errors: list[str] = []
        self.warnings: list[str] = []


class FakeTensorRt:
    """A fake TensorRT that counts builds and contexts; its flags make single steps fail."""

    def __init__(self, device: FakeRuntime, style: str = "10") -> None:
        self.device = device
        self.style = style
        self.builds = 0
        self.contexts = 0
        self.capturable = True
        self.refuse_execution = False
        self.refuse_contexts = False
        self.refuse_shapes = False
        self.finds_no_gpu = False
        self.noise = 0.0
        self.runtime_caches: list[bytes] = []
        self.timing_caches: list[bytes] = []
        self.settings: list[str] = []
        self.logger = Logger()
        self.DataType = IntEnum("DataType", ["FLOAT", "HALF", "INT32"], start=0)
        self.LayerType = IntEnum(
            "LayerType", ["CONVOLUTION", "CONSTANT", "SHAPE", "CAST", "SHUFFLE", "CONCATENATION", "SLICE"], start=0
        )
        self.OnnxParserFlag = SimpleNamespace(NATIVE_INSTANCENORM=0)
        self.BuilderFlag = SimpleNamespace(FP16="FP16", OBEY_PRECISION_CONSTRAINTS="OBEY", VERSION_COMPATIBLE="VERSION")
        self.HardwareCompatibilityLevel = SimpleNamespace(AMPERE_PLUS="AMPERE_PLUS")
        self.TacticSource = SimpleNamespace(EDGE_MASK_CONVOLUTIONS=3, JIT_CONVOLUTIONS=4)
        self.ComputeCapability = SimpleNamespace(SM89=89, SM120=120)
        self.PreviewFeature = SimpleNamespace(PROFILE_SHARING_0806="PROFILE_SHARING")
        flag = "EXPLICIT_BATCH" if style == "8.6" else "STRONGLY_TYPED"
        self.NetworkDefinitionCreationFlag = SimpleNamespace(**{flag: 0})
        if style != "8.6":
            self.ExecutionContextAllocationStrategy = SimpleNamespace(USER_MANAGED="USER_MANAGED")

    def library(self) -> TensorRt:
        version = {"8.6": (8, 6, 0), "10": (10, 9, 0), "rtx": (1, 7, 1)}[self.style]
        return TensorRt(self, self.style == "rtx", version, self.logger)

    def Builder(self, _logger: Any) -> Builder:
        self._need_gpu()
        return Builder(self)

    def OnnxParser(self, network: Network, _logger: Any) -> Parser:
        return Parser(network, self)

    def _need_gpu(self) -> None:
        if self.finds_no_gpu:
            said = self.logger.warnings if self.style == "8.6" else self.logger.errors
            said.append("CUDA initialization failure with error: 35")
            raise TypeError("pybind11::init(): factory function returned nullptr")

    def Runtime(self, _logger: Any) -> Any:
        self._need_gpu()
        return SimpleNamespace(deserialize_cuda_engine=self._deserialise)

    def _deserialise(self, plan: bytes) -> CudaEngine | None:
        if plan == b"foreign":
            self.logger.errors.append("built for another device")
            return None
        return CudaEngine(self, plan)


class Network:
    def __init__(self, trt: FakeTensorRt) -> None:
        self.trt = trt
        self.inputs: list[Any] = []
        self.layers: list[Any] = []
        self.onnx = b""
        self.num_inputs = 0
        self.num_layers = 0

    def get_input(self, index: int) -> Any:
        return self.inputs[index]

    def get_layer(self, index: int) -> Any:
        return self.layers[index]


class Parser:
    num_errors = 0

    def __init__(self, network: Network, trt: FakeTensorRt) -> None:
        self.network = network
        self.trt = trt
        if trt.style != "8.6":
            self.set_flag = lambda _flag: trt.settings.append("native instance norm")

    def parse_from_file(self, path: str) -> bool:
        self.network.onnx = Path(path).read_bytes()
        if self.network.onnx == b"unknown operator":
            self.trt.logger.errors.append('While parsing node number 3 [Frobnicate -> "output"]:')
            return False
        for tensor in onnx.load_from_string(self.network.onnx).graph.input:
            dims = tensor.type.tensor_type.shape.dim
            shape = tuple(dim.dim_value or -1 for dim in dims)
            self.network.inputs.append(SimpleNamespace(name=tensor.name, shape=shape, dtype=self.trt.DataType.FLOAT))
        self.network.num_inputs = len(self.network.inputs)
        kinds, types = self.trt.LayerType, self.trt.DataType
        self.network.layers = [
            Layer("half", kinds.CAST, types.HALF, "image"),
            Layer("convolved", kinds.CONVOLUTION, types.FLOAT, "half"),
            Layer("again", kinds.CONVOLUTION, types.FLOAT, "convolved"),
            Layer("wide", kinds.CONVOLUTION, types.FLOAT, "image"),
            Layer("whole", kinds.CONVOLUTION, types.INT32, "half"),
        ]
        self.network.num_layers = len(self.network.layers)
        return True


class Layer:
    num_inputs = num_outputs = 1

    def __init__(self, name: str, kind: int, dtype: int, source: str) -> None:
        self.name = name
        self.source = source
        self.type = kind
        self.dtype = dtype
        self.precision: int | None = None
        self.output_type: int | None = None

    def get_input(self, _index: int) -> Any:
        return SimpleNamespace(name=self.source)

    def get_output(self, _index: int) -> Any:
        return SimpleNamespace(name=self.name, dtype=self.dtype)

    def set_output_type(self, _index: int, dtype: int) -> None:
        self.output_type = dtype


class Config:
    def __init__(self, trt: FakeTensorRt) -> None:
        self.trt = trt
        if trt.style == "rtx":
            self.set_compute_capability = lambda _capability, _index: None

    @property
    def builder_optimization_level(self) -> int:
        return 3

    @builder_optimization_level.setter
    def builder_optimization_level(self, level: int) -> None:
        self.trt.settings.append(f"level {level}")

    def set_flag(self, flag: str) -> None:
        self.trt.settings.append(flag)

    def set_tactic_sources(self, bits: int) -> None:
        self.trt.settings.append(f"tactics {bits}")

    def set_preview_feature(self, feature: str, _on: bool) -> None:
        self.trt.settings.append(feature)

    def create_timing_cache(self, content: bytes) -> Any:
        self.trt.timing_caches.append(content)
        if content == b"damaged":
            return None
        return SimpleNamespace(serialize=lambda: b"timings", fits=content != b"foreign")

    def set_timing_cache(self, cache: Any, _ignore_mismatch: bool) -> bool:
        return bool(cache.fits)

    def add_optimization_profile(self, profile: Any) -> None:
        self.trt.settings.append(f"profile {profile.shapes['image']}")


class Builder:
    def __init__(self, trt: FakeTensorRt) -> None:
        self.trt = trt

    def create_network(self, _flags: int) -> Network:
        return Network(self.trt)

    def create_builder_config(self) -> Config:
        return Config(self.trt)

    def create_optimization_profile(self) -> Any:
        shapes: dict[str, Any] = {}
        return SimpleNamespace(shapes=shapes, set_shape=lambda name, *dims: shapes.update({name: dims}))

    def build_serialized_network(self, network: Network, _config: Config) -> bytes:
        self.trt.builds += 1
        return network.onnx


class CudaEngine:
    def __init__(self, trt: FakeTensorRt, plan: bytes) -> None:
        self.trt = trt
        self.session = ort.InferenceSession(plan, providers=["CPUExecutionProvider"])
        setattr(self, "device_memory_size" if trt.style == "8.6" else "device_memory_size_v2", 512)
        if trt.style == "8.6":
            self.create_execution_context_without_device_memory = self._context

    def create_execution_context(self, _config: Any) -> Context | None:
        return self._context()

    def _context(self) -> Context | None:
        return None if self.trt.refuse_contexts else Context(self)

    def create_runtime_config(self) -> Any:
        trt = self.trt
        cache = SimpleNamespace(deserialize=trt.runtime_caches.append, serialize=lambda: b"compiled")
        return SimpleNamespace(
            set_execution_context_allocation_strategy=lambda _: None,
            create_runtime_cache=lambda: cache,
            set_runtime_cache=lambda _: None,
            get_runtime_cache=lambda: cache,
        )


class Context:
    """An execution context: it reads shapes and addresses when it is enqueued, and computes in stream order."""

    def __init__(self, engine: CudaEngine) -> None:
        self.engine = engine
        self.trt = engine.trt
        self.trt.contexts += 1
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.addresses: dict[str, int] = {}
        self.device_memory = 0
        if self.trt.style != "8.6":
            self.set_device_memory = lambda address, _nbytes: setattr(self, "device_memory", address)
            self.is_stream_capturable = lambda _stream: self.trt.capturable

    def set_optimization_profile_async(self, _index: int, _stream: int) -> bool:
        return True

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        self.shapes[name] = tuple(shape)
        return not self.trt.refuse_shapes

    def set_tensor_address(self, name: str, address: int) -> bool:
        self.addresses[name] = address
        return True

    def execute_async_v3(self, stream: int) -> bool:
        if self.trt.refuse_execution:
            self.trt.logger.errors.append("the device said no")
            return False
        assert self.device_memory in self.trt.device.memory
        self.trt.device.enqueue(stream, self._compute)
        return True

    def _compute(self) -> None:
        feed = {name: _view(self.addresses[name], shape).copy() for name, shape in self.shapes.items()}
        (output,) = self.engine.session.run(["output"], feed)
        target = _view(self.addresses["output"], output.shape)
        target[...] = output + self.trt.noise


def _view(address: int, shape: tuple[int, ...]) -> np.ndarray:
    memory = (ctypes.c_float * int(np.prod(shape))).from_address(address)
    return np.frombuffer(memoryview(memory), np.float32).reshape(shape)
