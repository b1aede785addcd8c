"""Shared parts of the commands that publish models: flags, the model's name, the display of steps and comparisons."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engines.terminal.end_signals import ending_in_order
from engines.terminal.folders import folder_flag
from engines.terminal.log_lines import logs_on_stderr

if TYPE_CHECKING:
    from engines.manifest import ParityCase

SAMPLE_PICTURES = Path(__file__).resolve().parents[2] / "tests" / "data"
"""Sample pictures of a source checkout; an installed package needs --images."""
_SUFFIXES = frozenset((".pth", ".pt", ".tar", ".pickle", ".pkl", ".ckpt", ".bin", ".safetensors", ".onnx", ".zip"))


@dataclass(frozen=True, slots=True)
class PublishingFlags:
    """The flags of a command that publishes a model; each sets the request's field of the same name."""

    name: Annotated[
        str | None, typer.Option(help="Name of the model, as in models/NAME. By default made from the file's name.")
    ] = None
    images: Annotated[
        Path, typer.Option(help="Folder of images on which the graphs are compared with the original.")
    ] = SAMPLE_PICTURES
    max_batch: Annotated[
        int, typer.Option(min=1, max=1024, help="Largest number of samples in a batch, for which engines are built.")
    ] = 32
    output: Annotated[Path | None, folder_flag("Model repository to write to (RETOUCH_MODELS_DIR).")] = None
    licence: Annotated[str, typer.Option(help="Licence of the weights, for the card.")] = "not stated"
    training_data: Annotated[str, typer.Option(help="Data on which the weights were trained, for the card.")] = (
        "not stated"
    )

    def with_defaults(self, file: Path) -> dict[str, Any]:
        """Return the fields, with the repository of the settings and, without --name, a name made from the file.

        Raises:
            typer.BadParameter: no name is given, and none can be made from the file's name.
        """
        from service.core.settings import load_settings  # noqa: PLC0415 (loads pydantic)

        output, name = self.output or load_settings().models_dir, self.name
        if name is None:
            name = model_name_from_file(file)
            more = f"; it becomes the next version of {output / name}" if (output / name).exists() else ""
            typer.echo(f"the model is called {name}, after {file.name}; --name calls it otherwise{more}", err=True)
        return asdict(self) | {"name": name, "output": output}


def model_name_from_file(checkpoint: Path) -> str:
    """Make a valid model name (lower-case letters, digits, `-`, `_`, at most 64) from a file's name.

    Raises:
        typer.BadParameter: the file's name has no usable letter or digit.
    """
    stem = re.sub(r"-\d{4,6}-of-\d{4,6}(?=\.)|\.index\.json$", "", checkpoint.name)  # of a net in several files
    while (path := Path(stem)).suffix.lower() in _SUFFIXES:
        stem = path.stem
    plain = unicodedata.normalize("NFKD", stem).encode("ascii", "ignore").decode().lower()
    name = re.sub(r"[^a-z0-9_]+", "-", plain).strip("-_")[:64].rstrip("-_")
    if not name:
        raise typer.BadParameter(f"no model name can be made of {checkpoint.name}; give one with --name")
    return name


@contextmanager
def show_steps() -> Iterator[Callable[[str], None]]:
    """Show each step, as it begins, and the log on standard error; yields the function to call with each step.

    SIGTERM and SIGHUP end the steps as Ctrl-C does, so that no incomplete model is left in the repository.
    """
    from rich.console import Console  # noqa: PLC0415 (the command's help should not wait for it)

    console = Console(stderr=True, log_path=False)  # users need no source file beside a step
    with logs_on_stderr(), ending_in_order(), console.status("starting") as status:

        def notify(step: str) -> None:
            status.update(step)
            console.log(step)

        yield notify


def print_cases(cases: Sequence[ParityCase], title: str, caption: str) -> None:
    """Print a table of comparisons."""
    from rich.table import Table  # noqa: PLC0415 (as above)

    from engines.terminal.tables import print_table  # noqa: PLC0415 (loads rich)

    table = Table(title=title, caption=caption)
    for column in ("graph", "inputs", "PSNR dB", "largest difference"):
        table.add_column(column, justify="left" if column in ("graph", "inputs") else "right")
    for case in cases:
        psnr = "identical" if case.psnr_db is None else f"{case.psnr_db:.1f}"
        table.add_row(case.backend, case.inputs, psnr, f"{case.max_abs:.2g}")
    print_table(table)
