"""Starts and stops the servers under test: Retouch and its peers, each with its usual command."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.inputs import ROOT, write_fake_models
from benchmarks.harness.raw_http import Client
from tests.serving.ports import free_port


@dataclass(frozen=True, slots=True)
class Server:
    """A server that was started."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    def client(self) -> Client:
        return Client("127.0.0.1", self.port)

    async def until_ready(self, probe: Callable[[Client], object], timeout_s: float = 120.0) -> None:
        """Wait until `probe`, awaited, is true."""
        end = time.monotonic() + timeout_s
        client = self.client()
        while True:
            with contextlib.suppress(OSError):
                if await probe(client):
                    client.close()
                    await asyncio.sleep(0)  # the connection closes in the loop's next round
                    return
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the server did not start:\n{self.log.read_text()[-3000:]}")
            await asyncio.sleep(0.1)


@contextlib.contextmanager
def started(
    command: Sequence[str], port: int, log: Path, environ: Mapping[str, str] | None = None, *, cwd: Path = ROOT
) -> Iterator[Server]:
    """Run a server in a new process group, which is ended with all its children afterwards."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, env={**os.environ, **(environ or {})}, stdout=file, stderr=file, cwd=cwd, start_new_session=True
        )
    try:
        yield Server(process, port, log)
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(15)
        with contextlib.suppress(ProcessLookupError):  # some peers leave children behind
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def retouch(
    folder: Path,
    *,
    fake_batch_ms: float | None = None,
    command: Sequence[str] = ("-m", "retouch", "serve"),
    **settings: object,
) -> Iterator[Server]:
    """Run `retouch serve` on a free port, saving on, with the shipped models or with a fake one.

    Args:
        folder: the folder for results, caches and the log.
        fake_batch_ms: batch time of the fake engine; None for the models of `settings`, by default the shipped ones.
        command: arguments of Python that start the server.
        settings: further settings of the server, by name.
    """
    port = free_port()
    chosen: dict[str, object] = {"port": port, "results_dir": folder / "results", "workers": 0, **settings}
    if fake_batch_ms is not None:
        write_fake_models(folder / "models")
        chosen = {"models_dir": folder / "models", "engine": "fake", "fake_batch_ms": fake_batch_ms, **chosen}
    environ = {f"RETOUCH_{name.upper()}": str(value) for name, value in chosen.items()}
    with started([sys.executable, *command], port, folder / "retouch.log", environ) as server:
        yield server


async def retouch_is_ready(client: Client) -> bool:
    """Return whether /readyz answers 200."""
    return (await client.get("/readyz")).status == 200
