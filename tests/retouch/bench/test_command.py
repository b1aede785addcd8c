from __future__ import annotations

import json
import socket
from io import StringIO
from pathlib import Path
from threading import Thread

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from retouch.bench.load import Observation, ServerReply
from retouch.bench.progress import show_progress
from retouch.command_line import app


def bench(url: str, *arguments: object) -> Result:
    texts = ["bench", "--url", url, "--duration", "0.3", "--warm-up", "0", *(str(argument) for argument in arguments)]
    return CliRunner().invoke(app, texts, env={"COLUMNS": "160"})


def plain(result: Result) -> str:
    return " ".join(result.output.replace("│", " ").split())


def test_rates_and_clients_are_measured_and_written_as_table_json_and_plot(contract, pictures: Path) -> None:
    result = bench(
        *(contract.url, "--image", pictures / "images", "--mask", pictures / "masks"),
        *("--rate", "20,60", "--concurrency", "2", "--warm-up", "0.1", "--quality", 80, "--no-save"),
        *("--json", pictures / "o.json", "--plot", pictures / "o.png"),
    )
    assert result.exit_code == 0, result.output
    assert all(name in result.stdout for name in ("20 req/s", "60 req/s", "2 clients", "infer"))
    document = json.loads((pictures / "o.json").read_text("utf-8"))
    assert document["title"] == "inpaint with photos/1 on fake"
    assert (document["model"], document["engine"], document["plan"]["seed"]) == ("photos/1", "fake", 0)
    assert [(run["mode"], run["level"]) for run in document["runs"]] == [("open", 20), ("open", 60), ("closed", 2)]
    assert all(run["ok"] == run["requests"] > 0 for run in document["runs"])
    assert (pictures / "o.png").read_bytes().startswith(b"\x89PNG")
    assert {asked["image"] for asked in contract.asked} == {b"images/a.png", b"images/b.jpg", b"images/c.webp"}
    assert {(asked["quality"], asked["save"]) for asked in contract.asked} == {("80", "false")}
    warm_up = len(contract.asked) - 1 - sum(run["requests"] for run in document["runs"])
    assert warm_up > 0


def test_json_on_standard_output_is_nothing_but_json_and_needs_no_folder_to_write_in(
    contract, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/proc")
    image = pictures / "images/a.png"
    result = bench(contract.url, "--endpoint", "translate", "--image", image, "--concurrency", "1", "--json", "-")
    assert result.exit_code == 0, result.output
    assert len(json.loads(result.stdout)["runs"]) == 1
    assert "1 clients" in result.stderr


def test_clients_are_the_default(contract, pictures: Path) -> None:
    result = bench(contract.url, "--endpoint", "translate", "--image", pictures / "images/a.png")
    assert [f"{clients} clients" in result.stdout for clients in (1, 4, 16)] == [True] * 3


def test_a_broken_limit_is_exit_code_1(contract, pictures: Path) -> None:
    contract.delay_s = 0.02
    image = pictures / "images/a.png"
    given = (contract.url, "--endpoint", "translate", "--image", image, "--rate", 30)
    assert bench(*given, "--fail-over-p99-ms", 10_000).exit_code == 0
    slow = bench(*given, "--fail-over-p99-ms", 10)
    assert slow.exit_code == 1
    assert "is over 10 ms" in slow.stderr


def test_failed_requests_are_counted_and_can_be_a_failure(contract, pictures: Path) -> None:
    (pictures / "bad.png").write_bytes(contract.unwelcome)
    images = ("--image", pictures / "images/a.png", "--image", pictures / "bad.png")
    given = (contract.url, "--endpoint", "translate", *images, "--rate", 30)
    tolerant = bench(*given)
    assert tolerant.exit_code == 0
    assert "errors 400 invalid_image: " in tolerant.stdout
    assert bench(*given, "--fail-on-errors").exit_code == 1


def test_a_first_request_that_fails_ends_the_benchmark_with_the_servers_message(contract, pictures: Path) -> None:
    contract.unwelcome = b"images/a.png"
    result = bench(contract.url, "--endpoint", "translate", "--image", pictures / "images/a.png")
    assert result.exit_code == 1
    assert result.output == (
        "error: the first request failed, so nothing was measured: 400 invalid_image: these bytes are no image\n"
    )


def test_an_absent_server_is_one_line(pictures: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        result = bench(url, "--endpoint", "translate", "--image", pictures / "images/a.png")
    assert result.exit_code == 1
    why = f"no server answers at {url} (Connection refused); is `retouch serve` running there?"
    assert result.output == f"error: the first request failed, so nothing was measured: {why}\n"


def test_a_server_that_cuts_the_connection_is_one_line(pictures: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"

        def cut() -> None:
            listening.accept()[0].close()

        cutting = Thread(target=cut)
        cutting.start()
        result = bench(url, "--endpoint", "translate", "--image", pictures / "images/a.png")
        cutting.join(10)
    assert result.exit_code == 1
    assert f"nothing was measured: {url} gave no reply (" in result.output
    assert result.output.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["--rate", "5,fast"], "'5,fast' is not a list of numbers", id="no number"),
        pytest.param(["--rate", "0"], "must be positive", id="no rate"),
        pytest.param(["--concurrency", "1.5"], "whole ones for clients", id="half a client"),
        pytest.param(["--endpoint", "inpaint"], "inpaint needs --mask", id="no mask"),
        pytest.param(["--mask", "images/a.png"], "translate takes none", id="a mask too many"),
        pytest.param(
            ["--endpoint", "inpaint", "--image", "images", "--image", "images", *["--mask", "masks"] * 2],
            "3 --image and 2 --mask",
            id="masks do not match",
        ),
    ],
)
def test_what_cannot_be_measured_is_refused_at_once(
    pictures: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(pictures)
    result = bench("http://127.0.0.1:9", "--endpoint", "translate", "--image", "images/a.png", *arguments)
    assert result.exit_code in {1, 2}
    assert message in plain(result)
    assert "Traceback" not in result.output


def test_a_report_that_could_not_be_written_is_refused_at_once(
    pictures: Path, monkeypatch: pytest.MonkeyPatch, unwritable_report: tuple[list[str], str]
) -> None:
    arguments, message = unwritable_report
    monkeypatch.chdir(pictures)
    result = bench("http://127.0.0.1:9", "--endpoint", "translate", "--image", "images/a.png", *arguments)
    assert result.exit_code == 1
    assert message in plain(result)
    assert "Traceback" not in result.output


def test_one_mask_serves_several_images(contract, pictures: Path) -> None:
    images = ("--image", pictures / "images/a.png", "--image", pictures / "images/b.jpg")
    result = bench(contract.url, *images, "--mask", pictures / "masks/c.png", "--concurrency", 1)
    assert result.exit_code == 0, result.output
    assert {asked["mask"] for asked in contract.asked} == {b"masks/c.png"}


def test_progress_is_shown_on_a_terminal_and_only_there() -> None:
    def shown(*, terminal: bool) -> str:
        console = Console(file=StringIO(), force_terminal=terminal, width=100)
        with show_progress(console) as bar:
            bar.on_reply(Observation(0, 0, 0.1, ServerReply(200)))
            bar.on_run_begin("warm-up", 2.0)
            bar.on_run_begin("20 req/s", 10.0)
            bar.on_reply(Observation(0, 0, 1.0, ServerReply(200)))
            bar.on_reply(Observation(0, 0, 2.0, ServerReply(503)))
        assert isinstance(console.file, StringIO)
        return console.file.getvalue()

    assert "1 ok, 1 failed" in shown(terminal=True)
    assert shown(terminal=False).strip() == ""
