from __future__ import annotations

from io import StringIO
from pathlib import Path

from PIL import Image
from rich.console import Console

from retouch.bench.load import Observation, ServerReply
from retouch.bench.plot import save_plot
from retouch.bench.report import Mode, RunReport, summarise
from retouch.bench.table import print_reports


def report(mode: Mode, level: float, latency_s: float, *, lag_s: float = 0.0, fails: bool = False) -> RunReport:
    reply = ServerReply(503, "overloaded") if fails else ServerReply(200, server_timing="infer;dur=8", batch_size="2")
    return summarise(mode, level, [Observation(0.0, lag_s, latency_s, reply)])


def printed(*reports: RunReport) -> str:
    console = Console(file=StringIO(), width=160)
    print_reports(list(reports), console)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_the_table_has_a_row_for_each_load() -> None:
    text = printed(report("open", 12.5, 0.1), report("closed", 4, 0.2))
    assert "12.5 req/s" in text
    assert "4 clients" in text
    assert " 100 " in text.split("12.5 req/s")[1].splitlines()[0]
    assert "8.0 (8.0)" in text
    assert "batch sizes 2: 100%" in text


def test_a_run_without_success_shows_dashes_and_its_errors() -> None:
    text = printed(report("open", 5, 0.1), report("open", 50, 0.1, fails=True))
    assert "–" in text.split("50 req/s")[1].splitlines()[0]
    assert "50 req/s: errors 503 overloaded: 1" in text


def test_only_failed_runs_have_no_table_of_stages() -> None:
    assert "each stage" not in printed(report("open", 50, 0.1, fails=True))


def test_a_late_driver_is_pointed_out() -> None:
    assert "the load generator was" in printed(report("open", 5, 0.1, lag_s=0.05))
    assert "the load generator was" not in printed(report("open", 5, 0.1))


def test_the_plot_has_a_row_for_each_kind_of_loop(tmp_path: Path) -> None:
    opened = [report("open", rate, rate / 100) for rate in (20, 5, 10)]
    closed = [report("closed", 1, 0.01), report("closed", 4, 0.1, fails=True)]
    save_plot(opened, tmp_path / "open.png", "open")
    save_plot([*opened, *closed], tmp_path / "both.png", "both")
    with Image.open(tmp_path / "open.png") as one, Image.open(tmp_path / "both.png") as two:
        assert one.format == two.format == "PNG"
        assert two.width == one.width
        assert two.height == 2 * one.height
        assert len(two.convert("L").getcolors() or []) > 20


def test_what_was_answered_is_drawn_against_what_was_sent(tmp_path: Path) -> None:
    reply = ServerReply(200)
    run = summarise("open", 10, [Observation(at, at, at + 0.02, reply) for at in (0.1, 0.2, 0.23)])
    assert run.ok_per_s == run.sent_per_s > run.level
    assert summarise("open", 10, []).sent_per_s == 0
    save_plot([run], tmp_path / "sent.svg", "sent")
    assert "<!-- sent -->" in (tmp_path / "sent.svg").read_text("utf-8")


def test_names_from_the_server_are_shown_as_they_are() -> None:
    observation = [
        Observation(0, 0, 0.1, ServerReply(200, server_timing="pre[b];dur=8")),
        Observation(0, 0, 0.1, ServerReply(503, "[i]")),
    ]
    text = printed(summarise("open", 5, observation))
    assert "pre[b]" in text
    assert "503 [i]: 1" in text


def test_runs_that_all_failed_can_be_plotted(tmp_path: Path) -> None:
    save_plot([report("open", 5, 0.1, fails=True), summarise("open", 9, [])], tmp_path / "failed.svg", "failed")
    assert (tmp_path / "failed.svg").read_text("utf-8").startswith("<?xml")
