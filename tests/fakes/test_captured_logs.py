"""Log lines are captured from all threads."""

from __future__ import annotations

from threading import Event, Thread

import structlog
from structlog.typing import EventDict

from tests.fakes.captured_logs import capture_logs


def test_a_line_that_another_thread_is_writing_is_finished_as_it_began() -> None:
    begun, captures, written = Event(), Event(), list[str]()

    def wait(_logger: object, _method: str, line: EventDict) -> EventDict:
        begun.set()
        assert captures.wait(60)
        return line

    def render(_logger: object, _method: str, line: EventDict) -> str:
        written.append(line["event"])
        return str(line["event"])

    structlog.configure(processors=[wait, render])
    log = structlog.get_logger()
    thread = Thread(target=log.info, args=("early",), kwargs={"seconds": 1})
    thread.start()
    assert begun.wait(60)
    with capture_logs() as lines:
        captures.set()
        thread.join(60)
        log.info("late", seconds=2)
    log.info("after", seconds=3)
    assert written == ["early", "after"]
    assert lines == [{"event": "late", "seconds": 2, "log_level": "info"}]
