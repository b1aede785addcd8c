"""gRPC of the real command: in one process, and with several front ends on one port."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from grpc import StatusCode

from service.grpc.methods import METHODS, SERVICE
from tests.serving.fake_models import write_photos_and_facades
from tests.serving.grpc_client import Answered, GrpcClient, answer_of, files_request
from tests.serving.key_files import add_key
from tests.serving.ports import free_port
from tests.serving.served_process import ROOT, SERVE, ServedProcess
from tests.serving.waiting import wait_until

pytestmark = pytest.mark.slow
SCOPES = ["inference", "results:read", "results:delete"]
HANGING = """
import sys
from tests.serving.grpc_client import GrpcClient
client = GrpcClient(sys.argv[1])
futures = [client.start("ModelInfer", open(sys.argv[2], "rb").read(), timeout=None) for _ in range(8)]
print("sent", flush=True)
for future in futures:
    future.code()
"""


@pytest.fixture(params=[0, 2], ids=["one process", "two front ends"])
def workers(request: pytest.FixtureRequest) -> int:
    found: int = request.param
    return found


@pytest.fixture
def served(tmp_path: Path, workers: int) -> Iterator[ServedProcess]:
    """A server with gRPC and two keys, `alice` and `bob`; its port is in `grpc_port`."""
    for name in ("alice", "bob"):
        (tmp_path / name).write_text(add_key(tmp_path / "keys.json", name=name, scopes=SCOPES))
    with ServedProcess(
        tmp_path,
        models_dir=write_photos_and_facades(tmp_path / "models"),
        keys_file=tmp_path / "keys.json",
        workers=workers,
        grpc_port=free_port(),
        fake_batch_ms=20,
    ) as served:
        yield served


def address(served: ServedProcess) -> str:
    return str(served.lines("serving")[-1]["grpc"])


def client_of(served: ServedProcess, tmp_path: Path, name: str) -> GrpcClient:
    return GrpcClient(address(served), (tmp_path / name).read_text())


def test_fills_are_those_of_http_and_every_method_requires_a_key(
    served: ServedProcess, tmp_path: Path, photo: bytes, mask: bytes
) -> None:
    key = (tmp_path / "alice").read_text()
    form = {"image": photo, "mask": mask}
    native = httpx.post(f"{served.url}/v1/inpaint", files=form, headers={"X-API-Key": key}, timeout=60).content

    def fill(_: int) -> bytes:
        with GrpcClient(address(served), key) as own:  # a connection for each call, so that every front end gets some
            return own.infer(files_request(photo, mask))

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(fill, range(24))) == {native}
    with GrpcClient(address(served)) as stranger:
        for path in METHODS:
            public = path.removeprefix(SERVICE) in ("ServerLive", "ServerReady")
            expected = StatusCode.OK if public else StatusCode.UNAUTHENTICATED
            assert stranger.call(path).code is expected, path
    assert served.terminate() == 0


def test_each_user_has_results_and_idempotency_keys_of_its_own(
    served: ServedProcess, tmp_path: Path, photo: bytes, mask: bytes
) -> None:
    with client_of(served, tmp_path, "alice") as alice, client_of(served, tmp_path, "bob") as bob:
        request = files_request(photo, mask)
        first = alice.call("ModelInfer", request, idempotency_key="same")
        for _ in range(4):
            with client_of(served, tmp_path, "alice") as again:
                repeated = again.call("ModelInfer", request, idempotency_key="same")
                assert repeated.trailing["location"] == first.trailing["location"]
        other = bob.call("ModelInfer", request, idempotency_key="same")
        assert other.trailing["location"] != first.trailing["location"]

    def listed(name: str) -> set[str]:
        headers = {"X-API-Key": (tmp_path / name).read_text()}
        return {one["url"] for one in httpx.get(f"{served.url}/v1/results", headers=headers).json()["results"]}

    wait_until(lambda: listed("alice") == {first.trailing["location"]})
    wait_until(lambda: listed("bob") == {other.trailing["location"]})


def test_a_drain_answers_what_was_accepted_and_refuses_the_rest(
    served: ServedProcess, tmp_path: Path, photo: bytes, mask: bytes
) -> None:
    request = files_request(photo, mask)
    with client_of(served, tmp_path, "alice") as client:
        waiting = [client.start("ModelInfer", request) for _ in range(40)]
        assert answer_of(waiting[0]).code is StatusCode.OK
        served.process.terminate()
        answers: list[Answered] = [answer_of(future) for future in waiting]
        assert served.ended() == 0
    odd = [one for one in answers if one.code not in (StatusCode.OK, StatusCode.UNAVAILABLE)]
    assert odd == [], served.lines("request failed")
    accepted = [line for line in served.lines("request") if line["status"] == 200 and "Infer" in str(line["path"])]
    assert len(accepted) == sum(answered.code is StatusCode.OK for answered in answers)


def test_a_killed_client_leaves_nothing_behind(
    served: ServedProcess, tmp_path: Path, photo: bytes, mask: bytes
) -> None:
    (tmp_path / "request").write_bytes(files_request(photo, mask).SerializeToString())
    script = HANGING.replace("sys.argv[1])", f"sys.argv[1], {(tmp_path / 'alice').read_text()!r})")
    arguments = [sys.executable, "-c", script, address(served), str(tmp_path / "request")]
    with subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"sent\n"
        process.kill()
    with client_of(served, tmp_path, "bob") as client:
        assert client.infer(files_request(photo, mask))
    assert served.terminate() == 0


def test_a_taken_port_stops_the_start_and_says_so(tmp_path: Path, workers: int) -> None:
    models_dir = write_photos_and_facades(tmp_path / "models")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        served = ServedProcess(tmp_path, models_dir=models_dir, workers=workers, grpc_port=port)
        served.launch()
        assert served.process.wait(60) != 0
        assert f"127.0.0.1:{port}" in served.log
        assert "Traceback" not in served.log


def test_a_public_address_without_keys_is_refused_with_grpc_too(tmp_path: Path) -> None:
    served = ServedProcess(tmp_path, host="0.0.0.0", grpc_port=free_port())
    served.launch()
    assert served.process.wait(60) != 0
    assert "without an API key" in served.log


def test_without_grpcio_the_setting_says_what_to_install(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        "import importlib.util as util\nfind = util.find_spec\n"
        "util.find_spec = lambda name, *rest: None if name == 'grpc' else find(name, *rest)\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(hidden)}
    done = subprocess.run(
        [*SERVE, "--grpc-port", "50051", "--results-dir", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environ,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "pip install '.[grpc]'" in done.stderr
