"""Measures a server's peak memory during one large request to each foreign API, and to /v1/inpaint for comparison.

    python -m benchmarks.host.foreign_memory

Each request is sent to a new server with the fake engine: a picture of 13 megapixels of noise (a PNG of 37 MiB) and a
mask; the last requests are gzip that unpacks to 1 GiB, and a gRPC message with 32 million empty parts.
"""

from __future__ import annotations

import base64
import gzip
import json
import struct
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import httpx
import numpy as np
import psutil

from service.core.pictures import Picture
from service.imaging.files import codec
from tests.serving.fake_models import write_photos_and_facades
from tests.serving.grpc_client import GrpcClient, raw_request
from tests.serving.ports import free_port
from tests.serving.served_process import ServedProcess

_SIDE = 3600
_INTERVAL_S = 0.005
_JSON = {"Content-Type": "application/json"}
_INFER = "/v2/models/photos/infer"


class _Case(NamedTuple):
    """A request over HTTP; `options` are arguments of httpx."""

    name: str
    path: str
    options: dict[str, Any]

    def send(self, served: ServedProcess) -> str:
        """Return the status of the answer."""
        return str(httpx.post(f"{served.url}{self.path}", timeout=300, **self.options).status_code)


class _Call(NamedTuple):
    """A message over gRPC."""

    name: str
    message: bytes
    packed: grpc.Compression = grpc.Compression.NoCompression

    def send(self, served: ServedProcess) -> str:
        """Return the status of the answer."""
        with GrpcClient(str(served.lines("serving")[-1]["grpc"])) as client:
            return client.call("ModelInfer", self.message, timeout=300.0, compression=self.packed).code.name


def _infer(name: str, inputs: dict[str, tuple[str, list[int], bytes]]) -> _Case:
    entries = [
        {"name": part, "datatype": kind, "shape": shape, "parameters": {"binary_data_size": len(data)}}
        for part, (kind, shape, data) in inputs.items()
    ]
    head = json.dumps({"inputs": entries, "parameters": {"binary_data_output": True}}).encode()
    body = b"".join((head, *(data for _, _, data in inputs.values())))
    return _Case(name, _INFER, {"content": body, "headers": {"Inference-Header-Content-Length": str(len(head))}})


def _cases() -> Iterator[_Case | _Call]:
    pixels = np.random.default_rng(0).integers(0, 256, (_SIDE, _SIDE, 3), np.uint8)
    hole = np.zeros((_SIDE, _SIDE, 1), np.uint8)
    hole[1000:1300, 1000:1300] = 255
    files = {"image": codec.encode(Picture(pixels), "png", 90), "mask": codec.encode(Picture(hole), "png", 90)}
    texts = {name: base64.b64encode(data).decode() for name, data in files.items()}
    body = json.dumps(texts)
    webui = json.dumps({"init_images": [texts["image"]], "mask": texts["mask"]})
    elements = {name: ("BYTES", [1], struct.pack("<I", len(data)) + data) for name, data in files.items()}
    tensors = {
        "image": ("UINT8", [1, *pixels.shape], pixels.tobytes()),
        "mask": ("UINT8", [1, *hole.shape], hole.tobytes()),
    }
    bomb = gzip.compress(bytes(2**30))
    yield _Case("/v1/inpaint", "/v1/inpaint", {"files": files})
    yield _Case("openai", "/v1/images/edits", {"files": files, "data": {"mask_mode": "white"}})
    yield _Case("iopaint", "/api/v1/inpaint", {"content": body.encode(), "headers": _JSON})
    escaped = body.replace("/", "\\/").encode()
    yield _Case("iopaint, escaped", "/api/v1/inpaint", {"content": escaped, "headers": _JSON})
    yield _infer("open-inference, BYTES", elements)
    yield _infer("open-inference, UINT8", tensors)
    yield _Call("open-inference gRPC, BYTES", raw_request(elements).SerializeToString())
    yield _Call("open-inference gRPC, UINT8", raw_request(tensors).SerializeToString())
    yield _Case("automatic1111", "/sdapi/v1/img2img", {"content": webui.encode(), "headers": _JSON})
    yield _Case("open-inference, gzip of 1 GiB", _INFER, {"content": bomb, "headers": {"Content-Encoding": "gzip"}})
    yield _Call("open-inference gRPC, gzip of 1 GiB", bytes(2**30), grpc.Compression.Gzip)
    yield _Call("open-inference gRPC, 32 million empty inputs", b"\x2a\x00" * (2**25 - 1))


def _measure(case: _Case | _Call) -> tuple[str, float]:
    """Return the status, and the growth of the server's resident memory at its peak, in MiB."""
    folder = Path(tempfile.mkdtemp())
    settings = {"models_dir": write_photos_and_facades(folder / "models"), "save": "false", "grpc_port": free_port()}
    with ServedProcess(folder, **settings) as served:
        process, ended = psutil.Process(served.process.pid), threading.Event()
        before = process.memory_info().rss
        samples = [before]

        def watch() -> None:
            while not ended.wait(_INTERVAL_S):
                samples.append(process.memory_info().rss)

        watching = threading.Thread(target=watch)
        watching.start()
        status = case.send(served)
        ended.set()
        watching.join()
        served.terminate()
    return status, (max(samples) - before) / 2**20


def main() -> int:
    """Print a table."""
    print("| request | status | memory at the peak, MiB |\n|---|---|---|")
    for case in _cases():
        status, grown = _measure(case)
        print(f"| {case.name} | {status} | {grown:.0f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
