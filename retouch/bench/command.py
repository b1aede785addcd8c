"""`retouch bench`: measures a running server under load."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from engines.terminal.flag_groups import expanded
from retouch.bench.pipeline.command import bench_pipeline
from retouch.filling.jobs import FilesInvalid, Format, pair_images

if TYPE_CHECKING:
    from retouch.bench.load import Payload
    from retouch.bench.session import BenchPlan, BenchResult

Endpoint = Literal["inpaint", "translate"]
_CLOSED_BY_DEFAULT = "1,4,16"
_STDOUT = Path("-")

bench_app = typer.Typer(add_completion=False)
bench_app.command("pipeline")(bench_pipeline)


@dataclass(frozen=True, slots=True)
class RequestFlags:
    """The requests that are sent."""

    image: Annotated[
        list[Path] | None,
        typer.Option(help="Image to send, or a folder of images. Repeat for several, which are sent in turn."),
    ] = None
    mask: Annotated[
        list[Path] | None, typer.Option(help="Mask, or folder of masks, for each --image, or one for all.")
    ] = None
    endpoint: Annotated[Endpoint, typer.Option(help="Endpoint to call: /v1/inpaint or /v1/translate.")] = "inpaint"
    model: Annotated[str | None, typer.Option(help="Model, as NAME or NAME/VERSION. By default the server's.")] = None
    image_format: Annotated[Format | None, typer.Option("--format", help="Format of the results. By default png.")] = (
        None
    )
    quality: Annotated[int | None, typer.Option(min=1, max=100, help="Quality of JPEG and WebP results.")] = None
    save: Annotated[
        bool | None,
        typer.Option("--save/--no-save", help="Whether the server stores the results. By default as it is configured."),
    ] = None

    def payloads(self, images: list[Path]) -> list[Payload]:
        """Encode a request for each image.

        Raises:
            FilesInvalid: the masks do not fit the images or the endpoint.
        """
        from retouch.bench.sender import encode  # noqa: PLC0415 -- loads aiohttp and httpx

        fields = {
            "model": self.model,
            "format": self.image_format,
            "quality": self.quality,
            "save": self.save if self.save is None else str(self.save).lower(),
        }
        given = {name: str(value) for name, value in fields.items() if value is not None}
        payloads = []
        for image, mask in _pair_files(self.endpoint, images, self.mask or []):
            parts = {"image": image.read_bytes()} | ({"mask": mask.read_bytes()} if mask else {})
            payloads.append(encode(f"/v1/{self.endpoint}", parts, given))
        return payloads


@dataclass(frozen=True, slots=True)
class LoadFlags:
    """The runs of the measurement."""

    rate: Annotated[
        str, typer.Option(help="Open loop: requests per second; a run for each rate of a list such as 5,10,20.")
    ] = ""
    concurrency: Annotated[
        str,
        typer.Option(
            help=f"Closed loop: clients; a run for each number of a list. Without --rate {_CLOSED_BY_DEFAULT}."
        ),
    ] = ""
    duration: Annotated[float, typer.Option(min=0.1, help="Length of each run in seconds.")] = 10.0
    warm_up: Annotated[
        float, typer.Option(min=0, help="Seconds of load before the first run, which are not measured.")
    ] = 2.0
    grace: Annotated[float, typer.Option(min=0, help="Seconds to wait for the last replies of a run.")] = 30.0
    seed: Annotated[int, typer.Option(help="Seed of the arrival times.")] = 0

    def plan(self) -> BenchPlan:
        """Parse the flags.

        Raises:
            typer.BadParameter: `rate` or `concurrency` is not a list of positive numbers.
        """
        from retouch.bench.session import BenchPlan  # noqa: PLC0415 -- loads hdrh and numpy

        rates = _parse_numbers(self.rate, "--rate")
        clients = _parse_numbers(self.concurrency or ("" if rates else _CLOSED_BY_DEFAULT), "--concurrency")
        concurrencies = [int(number) for number in clients]
        return BenchPlan(rates, concurrencies, self.duration, self.warm_up, self.grace, self.seed)


@bench_app.callback(invoke_without_command=True)
@expanded
def bench(  # noqa: PLR0913 -- each is a flag, or a group of flags
    ctx: typer.Context,
    *,
    requests: RequestFlags,
    url: Annotated[str, typer.Option(help="Address of the server.")] = "http://127.0.0.1:8000",
    load: LoadFlags,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="File for the report as JSON; - for standard output.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="File for a plot (.png, .svg or .pdf).")] = None,
    fail_over_p99_ms: Annotated[
        float | None,
        typer.Option(min=0, help="Exit with status 1 if the p99 latency of a run is above so many milliseconds."),
    ] = None,
    fail_on_errors: Annotated[
        bool, typer.Option("--fail-on-errors", help="Exit with status 1 if a request failed.")
    ] = False,
) -> None:
    """Measure a running server: latency percentiles, throughput, errors, and time by stage.

    Open loop (--rate): requests are due at random times (Poisson), whatever the
    server does, and are timed from then.

    Closed loop (--concurrency): each client sends its next request when it has
    its answer.

    Example: retouch bench --rate 1,2,4 --image photo.jpg --mask mask.png
    """
    if ctx.invoked_subcommand:
        return
    from retouch.bench.report_files import check_writable  # noqa: PLC0415 -- loads hdrh and numpy

    if not requests.image:
        raise typer.BadParameter("name an image or a folder to send", param_hint="--image")
    check_writable(None if json_file == _STDOUT else json_file, plot)
    plan = load.plan()
    measured = _measure(url, requests.payloads(requests.image), plan)
    _print_and_write(measured, f"{requests.endpoint} with {measured.model} on {measured.engine}", json_file, plot)
    _exit_if_limits_broken(measured, fail_over_p99_ms, fail_on_errors)


def _parse_numbers(text: str, flag: str) -> list[float]:
    try:
        numbers = [float(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a list of numbers; write 5,10,20", param_hint=flag) from error
    if any(not 0 < number < 1e6 or (flag == "--concurrency" and number % 1) for number in numbers):
        raise typer.BadParameter(f"{text!r} must be positive numbers, whole ones for clients", param_hint=flag)
    return numbers


def _pair_files(endpoint: Endpoint, images: list[Path], masks: list[Path]) -> list[tuple[Path, Path | None]]:
    """Pair each image with its mask; raises FilesInvalid if the masks do not fit the images or the endpoint."""
    if (endpoint == "inpaint") != bool(masks):
        raise FilesInvalid("inpaint needs --mask and translate takes none")
    if len(masks) not in {0, 1, len(images)}:
        raise FilesInvalid(f"{len(images)} --image and {len(masks)} --mask: give one mask for each, or one for all")
    its_masks: list[Path | None] = [*masks] or [None]
    its_masks *= len(images) // len(its_masks)
    return [pair for image, mask in zip(images, its_masks, strict=True) for pair in pair_images(image, mask)]


def _measure(url: str, payloads: list[Payload], plan: BenchPlan) -> BenchResult:
    from rich.console import Console  # noqa: PLC0415 -- `retouch serve` runs without rich

    from retouch.bench.load import raise_open_file_limit, run_on_uvloop  # noqa: PLC0415 -- only here
    from retouch.bench.progress import show_progress  # noqa: PLC0415 -- loads rich
    from retouch.bench.sender import open_sender  # noqa: PLC0415 -- loads aiohttp
    from retouch.bench.session import Session  # noqa: PLC0415 -- loads hdrh and numpy

    async def measure() -> BenchResult:
        async with open_sender(url) as sender:
            return await Session(sender, payloads, plan, watcher, time.perf_counter, asyncio.sleep).measure()

    raise_open_file_limit()
    with show_progress(Console(stderr=True)) as watcher:
        return run_on_uvloop(measure())


def _print_and_write(measured: BenchResult, title: str, json_file: Path | None, plot: Path | None) -> None:
    from rich.console import Console  # noqa: PLC0415 -- `retouch serve` runs without it

    from retouch.bench.report_files import report_write_errors  # noqa: PLC0415 -- loads hdrh and numpy
    from retouch.bench.table import print_reports  # noqa: PLC0415 -- loads rich

    document = json.dumps({"title": title, **measured.as_json()}, indent=1)
    to_stdout = json_file == _STDOUT
    print_reports(measured.reports, Console(stderr=to_stdout))
    if to_stdout:
        typer.echo(document)
    elif json_file:
        with report_write_errors(json_file):
            json_file.write_text(document + "\n", "utf-8")
    if plot:
        from retouch.bench.plot import save_plot  # noqa: PLC0415 -- loads matplotlib

        with report_write_errors(plot):
            save_plot(measured.reports, plot, title)


def _exit_if_limits_broken(measured: BenchResult, over_p99_ms: float | None, on_errors: bool) -> None:
    from retouch.bench.report import broken_limits  # noqa: PLC0415 -- loads hdrh and numpy

    broken = broken_limits(measured.reports, over_p99_ms, on_errors=on_errors)
    for sentence in broken:
        typer.secho(sentence, fg=typer.colors.RED, err=True)
    if broken:
        raise typer.Exit(1)
