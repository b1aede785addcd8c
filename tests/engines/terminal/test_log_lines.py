from __future__ import annotations

import structlog

from engines.terminal.log_lines import logs_on_stderr


def test_what_is_logged_goes_to_standard_error_and_afterwards_where_it_went_before(capsys):
    before = structlog.get_config()
    with logs_on_stderr():
        structlog.get_logger().info("engine chosen")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "engine chosen" in captured.err
    assert structlog.get_config() == before
