"""Starts Retouch and each peer, with its own command and request format. See peers/README.md."""

from __future__ import annotations

import base64
import contextlib
import json
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.inputs import ROOT, photo_and_mask
from benchmarks.harness.metric_totals import metrics_page, total_in
from benchmarks.harness.processes import Server, retouch, started
from benchmarks.harness.raw_http import Client, encode
from retouch.bench.sender import encode as multipart
from tests.serving.ports import free_port

PEERS = ROOT / "benchmarks/peers"
SIDES = {"tiny": 64, "photos": 256}
TINY_BATCH_MS = 8.0
Parts = Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Contender:
    """One server of the comparison."""

    name: str
    start: Callable[[str, Path], contextlib.AbstractContextManager[Server]]
    """Starts the server, given the model's name and an empty folder."""
    request: Callable[[Parts, str], bytes]
    """Builds a whole HTTP request from the parts and the model's name."""
    executed: Callable[[Client, Path], object] | None = None
    """Returns the number of pictures that the engine has computed; None if they are counted in a file."""


def parts_of(model: str) -> dict[str, bytes]:
    """Return the parts of a request."""
    photo, mask = photo_and_mask(SIDES[model])
    return {"image": photo} if model == "tiny" else {"image": photo, "mask": mask}


def contenders() -> list[Contender]:
    """List Retouch, then every peer that is installed."""
    peers = [
        Contender(
            "mosec", _peer("mosec"), lambda parts, _: encode("/inference", "application/msgpack", _msgpack(parts))
        ),
        Contender(
            "litserve", _peer("litserve"), lambda parts, _: encode("/predict", "application/json", _base64(parts))
        ),
        Contender("pytriton", _peer("pytriton"), _triton),
        Contender("bentoml", _peer("bentoml"), _ask_bentoml),
        Contender("ray", _peer("ray"), lambda parts, _: _multipart("/", parts)),
    ]
    ours = [
        Contender("retouch", _retouch(save=False, workers="auto"), _ask_retouch, _computed),
        Contender("retouch --workers 0", _retouch(save=False), _ask_retouch, _computed),
        Contender("retouch saving", _retouch(save=True), _ask_retouch, _computed),
        Contender("retouch --workers 1", _retouch(save=False, workers=1), _ask_retouch, _computed),
    ]
    return ours + [peer for peer in peers if _python(peer.name).exists()]


def _ask_retouch(parts: Parts, model: str) -> bytes:
    task, more = ("translate", {}) if model == "tiny" else ("inpaint", {"strategy": "whole"})
    return _multipart(f"/v1/{task}", parts, {"format": "jpeg", **more})


def _ask_bentoml(parts: Parts, model: str) -> bytes:
    return _multipart("/translate" if model == "tiny" else "/inpaint", parts)


def _retouch(*, save: bool, workers: int | str = 0) -> Callable[[str, Path], contextlib.AbstractContextManager[Server]]:
    def start(model: str, folder: Path) -> contextlib.AbstractContextManager[Server]:
        batch_ms = TINY_BATCH_MS if model == "tiny" else None
        return retouch(folder, fake_batch_ms=batch_ms, save=save, workers=workers, spool_max_items=4096)

    return start


async def _computed(client: Client, _: Path) -> int:
    """Return the number of computed pictures, from the histogram of batch sizes; the warm-up is not in it."""
    return int(total_in(await metrics_page(client), "retouch_batch_size_sum"))


def _python(name: str) -> Path:
    return ROOT / ".venv-peers" / name / "bin/python"


def _peer(name: str) -> Callable[[str, Path], contextlib.AbstractContextManager[Server]]:
    @contextlib.contextmanager
    def start(model: str, folder: Path) -> Iterator[Server]:
        port = free_port()
        environ = {
            "PEER_MODEL": model,
            "PEER_PORT": str(port),
            "PEER_COUNT": str(folder / "executed"),
            "PEER_PRECISION": _precision(),
            "PYTHONPATH": str(PEERS),
            "BENTOML_DO_NOT_TRACK": "1",
            "PATH": f"{_python(name).parent}:/usr/local/bin:/usr/bin:/bin",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "disabled",
            "LD_LIBRARY_PATH": f"{_python(name).resolve().parent.parent}/lib",
            "BENTOML_HOME": str(folder / "bentoml"),
            "HOME": str(folder),
            "PYTHONWARNINGS": "ignore",
        }
        (folder / "executed").touch()
        command = [str(_python(name)), str(PEERS / f"{name}_server.py")]
        if name == "mosec":
            command += ["--address", "127.0.0.1", "--port", str(port), "--timeout", "120000", "--capacity", "4096"]
        if name == "bentoml":
            address = ["--host", "127.0.0.1", "--port", str(port), "--working-dir", str(PEERS)]
            command = [str(_python(name)), "-m", "bentoml", "serve", "bentoml_server:Inpaint", *address]
        with started(command, port, folder / f"{name}.log", environ) as server:
            yield server

    return start


def _precision() -> str:
    """Return the precision that Retouch chooses for this processor; all peers use it too."""
    decisions = sorted((ROOT / "cache/precision").glob("*.json")) if (ROOT / "cache/precision").exists() else []
    chosen = {json.loads(path.read_text()).get("precision") for path in decisions}
    return "bf16" if "bf16" in chosen else "f32"


def _multipart(path: str, parts: Parts, fields: Mapping[str, str] | None = None) -> bytes:
    payload = multipart(path, parts, fields or {})
    return encode(path, payload.content_type, payload.body)


def _msgpack(parts: Parts) -> bytes:
    """Encode a map of byte strings as MessagePack (https://msgpack.org)."""
    items = [
        bytes([0xA0 + len(name)]) + name.encode() + b"\xc6" + struct.pack(">I", len(data)) + data
        for name, data in parts.items()
    ]
    return bytes([0x80 + len(items)]) + b"".join(items)


def _base64(parts: Parts) -> bytes:
    return json.dumps({name: base64.b64encode(data).decode() for name, data in parts.items()}).encode()


def _triton(parts: Parts, _: str) -> bytes:
    """Encode KServe's v2 protocol with the binary data extension."""
    blobs = {name: struct.pack("<I", len(data)) + data for name, data in parts.items()}
    described = [
        {
            "name": name,
            "shape": [1, 1],
            "datatype": "BYTES",
            "parameters": {"binary_data_size": len(blob)},
        }
        for name, blob in blobs.items()
    ]
    outputs = [{"name": "output", "parameters": {"binary_data": True}}]
    head = json.dumps({"inputs": described, "outputs": outputs}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    body = head + b"".join(blobs.values())
    return encode("/v2/models/inpaint/infer", "application/octet-stream", body, headers)
