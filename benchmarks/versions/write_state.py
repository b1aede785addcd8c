"""Writes the state that a server of another revision leaves, for the test that the current server can use it.

    .venv/bin/python -m benchmarks.versions.write_state --revision 23a5997 tests/data/state-0.1.tar.xz

The archive holds `models/` (two tiny random generators, exported by that revision), `results/` as a server of that
revision left it after SIGKILL, and `promises.json`: its promises to clients. The server first ended regularly, with
saved results, kept answers and a finished job. Then it was started with an engine that hangs and a store that accepts
no results, and was killed with results in the spool and two unfinished jobs. Finished jobs and kept answers expire, so
the reader of the archive must shift the times in its ledger. Needs torch.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import torch

from benchmarks.gpu_engines.family_cases import TINY_CASES, Case, build_net
from benchmarks.harness.inputs import photo_and_mask
from benchmarks.harness.processes import Server, retouch_is_ready, started
from benchmarks.versions.checkout import environment, source_of
from tests.serving.ports import free_port

SIDE = 32


class State:
    """The state while it is written.

    Args:
        source: folder of the revision's source.
        folder: folder that the state is written to.
    """

    def __init__(self, source: Path, folder: Path) -> None:
        self.source, self.folder = source, folder
        self.results = folder / "results"
        self.promises: dict[str, Any] = {"results": [], "answers": [], "jobs": []}
        image, mask = photo_and_mask(SIDE)
        self.files = {"image": ("image.jpg", image, "image/jpeg"), "mask": ("mask.png", mask, "image/png")}

    def export(self, name: str, case: Case) -> None:
        """Export a generator with random weights, by the command of the revision."""
        checkpoint = self.folder / f"{name}.pth"
        torch.save(build_net(case).state_dict(), checkpoint)
        target = ["--name", name, "--output", self.folder / "models", "--max-batch", "8"]
        command = [sys.executable, "-m", "retouch", "export", checkpoint, *target]
        environ = {**os.environ, **environment(self.source)}
        subprocess.run(command, check=True, cwd=self.source, env=environ, stdout=subprocess.DEVNULL)
        checkpoint.unlink()

    @asynccontextmanager
    async def serving(self, **settings: object) -> AsyncIterator[tuple[Server, httpx.AsyncClient]]:
        """Run the server of the revision."""
        port = free_port()
        chosen = {
            "port": port,
            "models_dir": self.folder / "models",
            "results_dir": self.results,
            "engine_cache_dir": self.folder / "cache",
            "inpaint_model": "holes",
            "generate_model": "faces",
            **settings,
        }
        environ = {f"RETOUCH_{name.upper()}": str(value) for name, value in chosen.items()} | environment(self.source)
        command = [sys.executable, "-m", "retouch", "serve"]
        with started(command, port, self.folder / "log", environ, cwd=self.source) as server:
            await server.until_ready(retouch_is_ready)
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
                yield server, http

    async def ask(
        self, http: httpx.AsyncClient, task: str, headers: Mapping[str, str], **fields: str
    ) -> httpx.Response:
        """Send a request and return its reply, which must be a success."""
        files = self.files if task == "inpaint" else {name: (None, value) for name, value in fields.items()}
        data = fields if task == "inpaint" else None
        return (await http.post(f"/v1/{task}", files=files, data=data, headers=headers)).raise_for_status()

    async def promise_result(self, http: httpx.AsyncClient, task: str, **fields: str) -> None:
        """Save a result, and record its promise to the client."""
        reply = await self.ask(http, task, {}, **fields)
        location = reply.headers["location"]
        sidecar = (await http.get(location, headers={"Accept": "application/json"})).raise_for_status().json()
        self.promises["results"].append({"location": location, "sha256": digest(reply.content), "sidecar": sidecar})

    async def promise_answer(self, http: httpx.AsyncClient, key: str, task: str, **fields: str) -> None:
        """Keep an answer for an Idempotency-Key."""
        reply = await self.ask(http, task, {"Idempotency-Key": key}, **fields)
        self.promises["answers"].append({"key": key, "task": task, "fields": fields, "sha256": digest(reply.content)})

    async def promise_job(self, http: httpx.AsyncClient, key: str, task: str, **fields: str) -> str:
        """Start a job, with an Idempotency-Key; returns its path."""
        reply = await self.ask(http, task, {"Idempotency-Key": key, "Prefer": "respond-async"}, **fields)
        location = reply.headers["location"]
        self.promises["jobs"].append({"location": location, "key": key, "task": task, "fields": fields})
        return str(location)


def digest(body: bytes) -> str:
    """Return the SHA-256 of a body, in hexadecimal digits."""
    return hashlib.sha256(body).hexdigest()


async def end_of(http: httpx.AsyncClient, job: str) -> dict[str, Any]:
    """Wait for the end of a job and return its state."""
    for _ in range(1200):
        state: dict[str, Any] = (await http.get(job)).raise_for_status().json()
        if state["status"] not in ("queued", "running"):
            return state
        await asyncio.sleep(0.05)
    raise SystemExit(f"a job did not end within a minute: {state}")


async def write_saved(state: State) -> None:
    """Write the state of a server that ends regularly: saved results, kept answers, a finished job."""
    async with state.serving(engine="onnxrt") as (_, http):
        await state.promise_result(http, "inpaint", format="png")
        await state.promise_result(http, "inpaint", format="webp")
        await state.promise_result(http, "generate", format="jpeg", seed="7")
        await state.promise_answer(http, "saved", "inpaint", format="jpeg")
        await state.promise_answer(http, "drawn", "generate", format="jpeg", save="false")  # drawn anew by each call
        job = await state.promise_job(http, "finished", "generate", format="jpeg", seed="8", count="2")
        state.promises["jobs"][-1]["state"] = finished = await end_of(http, job)
        pictures = [(await http.get(url)).raise_for_status().content for url in finished["result_urls"]]
        state.promises["jobs"][-1]["sha256"] = [digest(picture) for picture in pictures]


async def write_killed(state: State) -> None:
    """Write the state of a killed server: results that are only in its spool, and unfinished jobs."""
    names = {f"{number:02x}" for number in range(256)} - {path.name for path in state.results.iterdir()}
    obstacles = [state.results / name for name in names]
    for obstacle in obstacles:  # a file that occupies the name of a folder of results
        obstacle.touch()
    fault = state.folder / "fault"
    async with state.serving(engine="fake", fake_faults=fault) as (server, http):
        await state.promise_result(http, "inpaint", format="png")
        await state.promise_result(http, "generate", format="jpeg", seed="7")
        fault.write_text("hang")
        await state.promise_job(http, "pending", "inpaint", format="png")
        await state.promise_job(http, "waiting", "generate", format="png", seed="9", count="2")
        server.process.kill()
        server.process.wait()
    for obstacle in obstacles:
        obstacle.unlink()
    unsaved = [one["location"].rpartition("/")[2] for one in state.promises["results"][-2:]]
    if any(list(state.results.glob(f"??/{name}*")) for name in unsaved):
        raise SystemExit("a result fell into an existing folder and was saved: run this again")


async def write(revision: str, archive: Path) -> None:
    """Write the state of a revision into an archive."""
    with TemporaryDirectory(prefix="retouch-state-") as temporary:
        folder = Path(temporary)
        state = State(source_of(revision, folder), folder / "state")
        state.results.mkdir(parents=True)
        for name, family in (("holes", "pconv"), ("faces", "dcgan")):
            state.export(name, next(one for one in TINY_CASES if one.family == family))
        await write_saved(state)
        await write_killed(state)
        state.promises["files"] = {
            part: base64.b64encode(content).decode() for part, (_, content, _) in state.files.items()
        }
        (state.folder / "promises.json").write_text(json.dumps(state.promises, indent=1))
        with tarfile.open(archive, "w:xz") as file:
            for part in ("models", "results", "promises.json"):
                file.add(state.folder / part, part)


def main() -> None:
    """Read the arguments and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--revision", required=True, help="a revision that git knows")
    parser.add_argument("archive", type=Path, help="file to write: NAME.tar.xz")
    options = parser.parse_args()
    asyncio.run(write(options.revision, options.archive))


if __name__ == "__main__":
    main()
