"""`retouch import`: turns a foreign ONNX graph into a model that the service can load."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from engines.errors import EngineUnavailable
from engines.terminal.flag_groups import expanded
from retouch.commands.publishing import PublishingFlags, print_cases, show_steps

if TYPE_CHECKING:
    from export.foreign.declaration import Declaration
    from export.foreign.importing import ImportResult


@dataclass(frozen=True, slots=True)
class DeclarationFlags:
    """The flags that describe the graph; properties not given are guessed or measured."""

    image: Annotated[
        str | None, typer.Option(help="Input for the image, as NAME, or NAME[0:3] for some of its channels.")
    ] = None
    mask: Annotated[str | None, typer.Option(help="Input for the mask, as NAME or NAME[3].")] = None
    output_tensor: Annotated[str | None, typer.Option(help="Output with the image, if the graph has several.")] = None
    layout: Annotated[Literal["nchw", "nhwc"] | None, typer.Option(help="Order of the dimensions.")] = None
    image_range: Annotated[
        Literal["0..1", "-1..1", "0..255"] | None, typer.Option(help="Values of black and white in the image.")
    ] = None
    mask_range: Annotated[
        Literal["0..1", "-0.5..0.5", "-1..1", "0..255"] | None, typer.Option(help="The two values of the mask.")
    ] = None
    mask_means: Annotated[
        Literal["hole", "known"] | None,
        typer.Option(help="Meaning of the mask's larger value: a hole, or known pixels."),
    ] = None
    hole_value: Annotated[
        float | None, typer.Option(help="Value of the image inside holes, in the range of --image-range.")
    ] = None
    output_range: Annotated[
        Literal["0..1", "-1..1", "0..255"] | None, typer.Option(help="Values of black and white in the output.")
    ] = None
    composite: Annotated[
        Literal["inside", "outside"] | None,
        typer.Option(
            help="inside: the graph itself returns known pixels unchanged, which is checked; outside: it does not."
        ),
    ] = None
    channels: Annotated[Literal["rgb", "bgr"], typer.Option(help="Order of the colours, of image and output.")] = "rgb"
    sides: Annotated[
        str | None,
        typer.Option(help="For a graph of free size: sides of the tiles to serve, in pixels. By default 256,512."),
    ] = None
    multiple_of: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=512,
            help="For a graph of free size: its sides must be multiples of so many pixels. By default 8.",
        ),
    ] = None

    def declaration(self) -> Declaration:
        """Parse the flags.

        Raises:
            typer.BadParameter: `image`, `mask` or `sides` cannot be parsed.
        """
        from export.foreign.declaration import Declaration  # noqa: PLC0415 (loads pydantic)

        given = asdict(self) | _declared_inputs(self.image, self.mask) | {"sides": parse_sides(self.sides)}
        return Declaration(output=given.pop("output_tensor"), **given)


@expanded
def import_graph(  # noqa: PLR0913 (each is a flag, or a group of flags)
    graph: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="The .onnx file, with its external data beside it.")
    ],
    *,
    task: Annotated[Literal["inpaint"], typer.Option(help="Task of the graph.")] = "inpaint",
    declared: DeclarationFlags,
    publishing: PublishingFlags,
    memory_gib: Annotated[
        float,
        typer.Option(
            min=0.5, max=4096, help="Limit in GiB for the memory (address space) of the process that reads the file."
        ),
    ] = 8,
    timeout_s: Annotated[
        float, typer.Option(min=1, max=86400, help="Limit in seconds for that process, after which it is killed.")
    ] = 600,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON instead of a table.")] = False,
) -> None:
    """Turn an inpainting model that is already ONNX into a model in models/NAME/VERSION.

    Properties that are not given are read from the graph or measured on
    photographs, and reported. A separate process without network reads the file,
    with limits of memory and time (docs/importing.md).

    Example: retouch import lama.onnx --name lama
    """
    del task  # it has only one value
    if importlib.util.find_spec("onnx") is None:
        raise EngineUnavailable("import needs onnx: make install-export")
    from export.foreign.importing import ImportRequest, import_model  # noqa: PLC0415 (loads pydantic)
    from export.foreign.messages import Limits  # noqa: PLC0415 (the same)

    request = ImportRequest(
        graph=graph,
        **publishing.with_defaults(graph),
        declaration=declared.declaration(),
        limits=Limits(memory_bytes=int(memory_gib * 2**30), seconds=timeout_s),
    )
    with show_steps() as notify:
        made = import_model(request, notify)
    (_print_json if as_json else _print_report)(made)


def parse_sides(text: str | None) -> tuple[int, ...]:
    """Parse `256,512`; None gives no sides.

    Raises:
        typer.BadParameter: an entry is not a number.
    """
    try:
        return tuple(int(part) for part in text.split(",")) if text else ()
    except ValueError as error:
        raise typer.BadParameter(f"--sides {text}: write numbers with commas, as in 256,512") from error


def _declared_inputs(image: str | None, mask: str | None) -> dict[str, Any]:
    from export.foreign.declaration import parse_input_slice  # noqa: PLC0415 (loads pydantic)

    try:
        return {
            "image": parse_input_slice(image) if image is not None else None,
            "mask": parse_input_slice(mask) if mask is not None else None,
        }
    except ValueError as error:
        raise typer.BadParameter("--image and --mask take NAME, NAME[CHANNEL] or NAME[FIRST:AFTER_LAST]") from error


def _print_json(made: ImportResult) -> None:
    facts = {
        "directory": str(made.directory),
        "manifest": made.manifest.model_dump(mode="json"),
        "found": made.imported.found,
        "notes": made.imported.notes,
        "enforced": made.enforced.model_dump(),
    }
    typer.echo(json.dumps(facts, indent=1))


def _print_report(made: ImportResult) -> None:
    from rich.console import Console  # noqa: PLC0415 (the command's help should not wait for it)

    from export.foreign.preparing import REFERENCE_DB  # noqa: PLC0415 (loads onnx)

    manifest, console = made.manifest, Console()
    title = f"{manifest.key}: the wrapped graph against the file's own"
    print_cases(manifest.parity.cases, title, f"bar {REFERENCE_DB:g} dB")
    lines = [
        *(f"found: {sentence}" for sentence in made.imported.found),
        "wired: " + " ".join(f"--{flag} {value}" for flag, value in made.imported.flags.items()),
        *(f"note: {sentence}" for sentence in made.imported.notes),
        *(f"while it was read, {what}: {how}" for what, how in made.enforced.model_dump().items()),
        f"published {made.directory}",
    ]
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
