"""The log stream: a stalled reader delays no process, and learns how many lines it has missed."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import pytest
import structlog

from service.core.settings import Settings
from service.telemetry.log_stream import LogStream
from service.telemetry.logs import configure_logs

ROOT = Path(__file__).parents[3]
LINE = "x" * 5_000 + "\n"
"""A line over 4,096 bytes, which a pipe may accept in parts."""

LOGS_MORE_THAN_A_PIPE_HOLDS = """
import logging, structlog, sys
from service.core.settings import Settings
from service.telemetry.logs import configure_logs
configure_logs(Settings())
for n in range(2000):
    structlog.get_logger("one").info("a request", n=n)
    logging.getLogger("another").warning("as uvicorn logs")
print("it went on", flush=True)
sys.stdin.read()
structlog.get_logger("one").info("the last line")
"""


@pytest.fixture
def pipe() -> Iterator[tuple[int, TextIO]]:
    """A pipe: the descriptor of its read end, and its write end as a file."""
    read, write = os.pipe()
    with os.fdopen(write, "w") as file:
        yield read, file
    os.close(read)


def test_a_process_continues_while_its_log_is_not_read() -> None:
    command = [sys.executable, "-c", LOGS_MORE_THAN_A_PIPE_HOLDS]
    read, write = os.pipe()
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=write) as process:
        os.close(write)
        assert process.stdin
        assert process.stdout
        try:
            assert process.stdout.readline() == b"it went on\n"
            logged = os.read(read, 1 << 20)
            process.stdin.close()
            with os.fdopen(read, "rb") as rest:
                logged += rest.read()
        finally:
            process.kill()
    lines = [json.loads(line) for line in logged.splitlines()]
    *written, last, dropped = lines
    assert last["event"] == "the last line"
    assert dropped["event"] == "log lines were dropped, because standard error was not read"
    assert len(written) + dropped["lines"] == 4000


def test_a_line_that_was_cut_is_completed_before_others_are_written(pipe: tuple[int, TextIO]) -> None:
    read, file = pipe
    stream = LogStream(file, write_timeout_s=0)
    for _ in range(20):
        stream.write(LINE)
    first = os.read(read, 1 << 20)
    assert not first.endswith(b"\n")
    stream.write("after it\n")
    assert (first + os.read(read, 1 << 20)).decode().startswith(LINE * (len(first) // len(LINE) + 1) + "after it\n")


def test_a_descriptor_that_others_share_still_blocks(pipe: tuple[int, TextIO]) -> None:
    _, file = pipe
    stream = LogStream(file, write_timeout_s=0)
    stream.write(LINE)
    assert os.get_blocking(file.fileno())


def test_a_regular_file_is_continued_where_it_ends(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as file:
        file.write("of another program\n")
        file.flush()
        LogStream(file).write("a line\n")
    assert (tmp_path / "log").read_text() == "of another program\na line\n"


def test_a_line_that_the_disk_refuses_is_dropped() -> None:
    with suppress(OSError), Path("/dev/full").open("w") as full:  # closing the file tries to write again
        LogStream(full).write("a line\n")
        written = True
    assert written


def test_a_file_without_a_descriptor_gets_the_lines() -> None:
    file = io.StringIO()
    LogStream(file).write("a line\n")
    assert file.getvalue() == "a line\n"


def test_a_line_with_half_a_surrogate_pair_is_written(pipe: tuple[int, TextIO]) -> None:
    read, file = pipe
    LogStream(file).write("\ud800 a line\n")
    assert os.read(read, 100) == b"\\ud800 a line\n"


def test_what_both_kinds_of_loggers_write_is_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(Settings())
    structlog.get_logger("one").info("from structlog")
    logging.getLogger("another").warning("from logging")
    events = [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()]
    assert events == ["from structlog", "from logging"]
