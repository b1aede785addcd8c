"""Traces one inpaint request over a real socket: the project's files in order of entry, and the frames to the decoder.

    .venv/bin/python -m benchmarks.host.request_trace [--side 256] [--save] [--json FILE]

Server and client share a process; the engine is the fake one. A profile function on every thread of the server records
each call of one of the project's functions, properties and comprehensions included, from the connection to 100 ms after
the reply. Functions that the idle server calls periodically are left out. The store's threads, which save after the
reply, are printed separately. An arrow marks a file that calls another file of the project. The frames are those on the
stack of the decoder's thread while it runs, and those of the task that waits for this thread.

The exit status is 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any

from benchmarks.harness.inputs import ROOT, inpaint_body, write_fake_models
from benchmarks.harness.server_thread import running_on_thread
from service.core.settings import Settings
from service.imaging.files import codec
from service.telemetry.logs import configure_logs
from service.web import routes
from service.web.server import DrainingServer

MAX_FILES = 24
MAX_FRAMES = 9
_ROOMS = tuple(str(ROOT / name) + "/" for name in ("service", "engines", "retouch"))
_EXECUTOR, _CODEC_THREADS = "concurrent/futures/thread.py", "imaging/pool/thread_pool.py"
_SAVING_THREADS = "save"
_IDLE_S = 3.0
"""Seconds for which the idle server is watched: longer than all periods of its tasks except those of a minute."""
_AFTER_S = 0.1


@dataclass(frozen=True)
class Call:
    """A call of one of the project's functions.

    root: the project's outermost function on the thread's stack. caller: its nearest calling function; None if none is.
    """

    root: CodeType
    code: CodeType
    caller: CodeType | None
    thread: str

    @property
    def file(self) -> str:
        return _file(self.code)


@dataclass
class Recorder:
    """Records calls on all threads, the task that created each task, and the task that gave each thread its work."""

    on: bool = False
    calls: list[Call] = field(default_factory=list)
    way: list[str] = field(default_factory=list)
    """Frames from the outermost to the decoder's, as FILE:FUNCTION, of the first decoding since the last reset."""
    _makers: dict[int, asyncio.Task[Any] | None] = field(default_factory=dict)
    """The task that created each task or work item, by the id of the created one."""
    _thread: threading.local = field(default_factory=threading.local)

    def profile(self, frame: FrameType, event: str, _: object) -> None:
        """Record a call; the function that `threading.setprofile` takes."""
        if event != "call" or not self.on:
            return
        code = frame.f_code
        self._note_maker(frame)
        if code.co_filename.startswith(_ROOMS):
            frames = list(_project_frames(frame))
            caller = frames[1].f_code if len(frames) > 1 else None
            self.calls.append(Call(frames[-1].f_code, code, caller, threading.current_thread().name))
            if code is codec.decode.__code__ and not self.way:
                task = _current_task() or getattr(self._thread, "maker", None)
                own = [_name(one.f_code) for one in reversed(frames)]
                self.way.extend([*self._waiting_for(task, running=_current_task() is not None), *own])

    def _note_maker(self, frame: FrameType) -> None:
        """Record the task that gives a work item to a thread and, on the thread, the task whose work item starts."""
        file, name, known = frame.f_code.co_filename, frame.f_code.co_name, frame.f_locals
        if file.endswith(_CODEC_THREADS) and name == "submit":
            self._makers[id(known["arguments"])] = _current_task()
        elif file.endswith(_CODEC_THREADS) and name == "_outcome_of":
            self._thread.maker = self._makers.pop(id(known["arguments"]), None)
        elif file.endswith(_EXECUTOR) and "self" in known:
            work = id(known["self"])
            if name == "__init__" and "future" in known:
                self._makers[work] = _current_task()
            elif name == "run":
                self._thread.maker = self._makers.pop(work, None)

    def new_task(self, loop: asyncio.AbstractEventLoop, work: Any, **how: Any) -> asyncio.Task[Any]:
        """Create a task, and record the task that created it."""
        task = asyncio.Task(work, loop=loop, **how)
        self._makers[id(task)] = _current_task()
        return task

    def _waiting_for(self, task: asyncio.Task[Any] | None, *, running: bool) -> list[str]:
        """Return the project's waiting coroutines, outermost first; a running task's are on its thread's stack."""
        if task is None:
            return []
        names: list[str] = []
        work: Any = None if running else task.get_coro()
        while work is not None and hasattr(work, "cr_code"):
            while work.cr_running:  # the coroutine has handed over its work and is about to wait
                time.sleep(0.001)
            if work.cr_code.co_filename.startswith(_ROOMS):
                names.append(_name(work.cr_code))
            work = work.cr_await
        return [*self._waiting_for(self._makers.get(id(task)), running=False), *names]


class TracedServer(DrainingServer):
    """The server, with an event loop that reports its tasks to the recorder."""

    def __init__(self, settings: Settings, recorder: Recorder) -> None:
        super().__init__(settings)
        self._recorder = recorder

    async def startup(self, sockets: list[Any] | None = None) -> None:
        asyncio.get_running_loop().set_task_factory(self._recorder.new_task)
        await super().startup(sockets)


@dataclass(frozen=True)
class Report:
    """The trace. files: between socket and reply, in order, with their called functions. frames: route to decoder."""

    files: dict[str, list[str]]
    handing_on: set[str]
    """The files that call another file of the project."""
    behind: list[str]
    """Files that only the store's threads enter."""
    frames: list[str]

    @property
    def is_within_bars(self) -> bool:
        return len(self.files) <= MAX_FILES and len(self.frames) <= MAX_FRAMES


def trace(side: int, save: bool) -> Report:
    """Serve, ask once to warm up, watch the idle server, and trace the second request."""
    recorder = Recorder()
    with _serving(recorder, save) as port:
        content_type, body = inpaint_body(side)
        connection = HTTPConnection("127.0.0.1", port)

        def ask() -> None:
            connection.request("POST", "/v1/inpaint", body, {"Content-Type": content_type})
            reply = connection.getresponse()
            if reply.status != 200:
                raise SystemExit(f"the request failed: {reply.read()[:500]!r}")
            reply.read()

        _until_ready(port)
        ask()
        connection.close()
        idle = {(call.root, call.code) for call in _recorded(recorder, lambda: None, _IDLE_S)}
        recorder.way.clear()
        calls = [call for call in _recorded(recorder, ask, _AFTER_S) if (call.root, call.code) not in idle]
    return _report(calls, recorder.way)


def _report(calls: Sequence[Call], way: list[str]) -> Report:
    files: dict[str, list[str]] = {}
    behind: dict[str, None] = {}
    handing_on: set[str] = set()
    for call in calls:
        if call.thread.startswith(_SAVING_THREADS):
            behind[call.file] = None
            continue
        if call.caller is not None and (caller := _file(call.caller)) != call.file:
            handing_on.add(caller)
        functions = files.setdefault(call.file, [])
        if call.code.co_name not in functions:
            functions.append(call.code.co_name)
    route = way.index(_name(routes.inpaint.__code__))
    left = [file for file in behind if file not in files]
    return Report(files, handing_on & set(files), left, way[route + 1 : -1])


def _recorded(recorder: Recorder, act: Callable[[], None], for_s: float) -> list[Call]:
    recorder.calls.clear()
    recorder.on = True
    act()
    time.sleep(for_s)
    recorder.on = False
    return list(recorder.calls)


@contextmanager
def _serving(recorder: Recorder, save: bool) -> Iterator[int]:
    """Run a server on a thread of this process; yields its port."""
    with TemporaryDirectory(prefix="retouch-trace-") as folder:
        models = Path(folder) / "models"
        write_fake_models(models, sides=(64, 128, 256, 512))
        settings = Settings(
            port=0, engine="fake", models_dir=models, results_dir=Path(folder) / "results", save=save, log_level="error"
        )
        configure_logs(settings)
        threading.setprofile(recorder.profile)
        try:
            with running_on_thread(TracedServer(settings, recorder)) as port:
                yield port
        finally:
            threading.setprofile(None)


def _until_ready(port: int) -> None:
    while True:
        connection = HTTPConnection("127.0.0.1", port)
        connection.request("GET", "/readyz")
        if connection.getresponse().status == 200:
            return
        time.sleep(0.05)


def _project_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the project's frames on a stack, innermost first."""
    while frame is not None:
        if frame.f_code.co_filename.startswith(_ROOMS):
            yield frame
        frame = frame.f_back


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # a thread without an event loop
        return None


def _file(code: CodeType) -> str:
    return code.co_filename.removeprefix(f"{ROOT}/")


def _name(code: CodeType) -> str:
    return f"{_file(code)}:{code.co_name}"


def print_report(report: Report) -> None:
    """Print both lists as Markdown, each with its bar."""
    print(f"Files from socket to reply: {len(report.files)} (at most {MAX_FILES}), {len(report.handing_on)} hand on.\n")
    rooms = Counter(file.rpartition("/")[0] for file in report.files)
    print(f"By room: {', '.join(f'{room} {count}' for room, count in rooms.most_common())}.\n")
    for number, (file, functions) in enumerate(report.files.items(), 1):
        named = [function for function in functions if not function.startswith("<")]
        print(f"{number}. {'→ ' if file in report.handing_on else ''}`{file}`: {', '.join(named)}")
    if report.behind:
        print(f"\nBehind the reply, on the store's threads: {', '.join(f'`{file}`' for file in report.behind)}")
    print(f"\nFrames between the route and the decoder: {len(report.frames)} (at most {MAX_FRAMES})\n")
    for number, frame in enumerate(report.frames, 1):
        print(f"{number}. `{frame}`")


def main() -> None:
    """Trace, print, and exit with 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=256, help="side of the picture in pixels")
    parser.add_argument("--save", action=argparse.BooleanOptionalAction, default=True, help="save the result")
    parser.add_argument("--json", type=Path, help="write the lists to this file, too")
    options = parser.parse_args()
    report = trace(options.side, options.save)
    print_report(report)
    if options.json:
        options.json.write_text(json.dumps({"files": report.files, "behind": report.behind, "frames": report.frames}))
    sys.exit(not report.is_within_bars)


if __name__ == "__main__":
    main()
