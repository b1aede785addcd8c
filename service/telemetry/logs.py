"""Structured logs, as key=value or JSON, with units in the keys and one line per request."""

from __future__ import annotations

import logging
import sys

import structlog

from service.core.settings import Settings
from service.telemetry.log_stream import LogStream


class _NamedLogger:
    """A logger that writes lines to a stream; `name`: the logging module."""

    def __init__(self, name: str, stream: LogStream) -> None:
        self.name = name
        self._stream = stream

    def _write_line(self, message: str) -> None:
        self._stream.write(message + "\n")

    log = debug = info = warn = warning = _write_line
    fatal = failure = err = error = critical = exception = _write_line


def configure_logs(settings: Settings) -> None:
    """Send the logs of structlog and of the standard library to standard error: coloured text on a terminal, else JSON.

    structlog writes directly, because a detour through the standard library costs more time than routing a request.
    """
    level = settings.log_level.upper()
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    console = sys.stderr.isatty()
    stream = LogStream(sys.stderr)
    rendering: list[structlog.typing.Processor] = (
        [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
        if console
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[*shared, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda name="", *_: _NamedLogger(name, stream),
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for chatty in ("uvicorn.access", "httpx", "httpcore"):
        logging.getLogger(chatty).setLevel("WARNING")
