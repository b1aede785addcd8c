"""The steps of an export, from a checkpoint to a published model.

read ─▶ recognise ─▶ build, load strictly ─▶ lower ─▶ graph FP32, graph FP16 (program) ─▶ compare (─▶ INT8) ─▶ publish
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from engines.manifest import ONNX_FILE, Manifest, Parity, ParityCase, Precision, Quantisation, read_manifest
from export.activations import FP16_MAX, fits_fp16, largest_activation
from export.checkpoint import Checkpoint, digest_of, load_strictly, parts_of, read_checkpoints, sha256_of
from export.errors import CheckpointRefused, OptionInvalid, ParityFailed
from export.generators.family import Bars, Interface, Translation
from export.int8.gate import WORST_DB
from export.lowering import to_half
from export.onnx_graph import OPSET, write_graph
from export.parity import (
    FP16,
    FP32,
    INT8,
    Backend,
    compare,
    fp16_missed,
    kept_promise,
    missed_bars,
    onnx_backend,
    require_parity,
    torch_backend,
)
from export.parity_inputs import find_pictures, parity_inputs
from export.program import PROGRAM_FILE, program_backend, write_program
from export.publish import PUBLISHING, check_name, publish, report_write_errors
from export.recognition import RecognisedNet, notes_on_files, recognise

Notify = Callable[[str], None]
Quantiser = Callable[[Path, Path, Manifest, Notify], Quantisation]
"""Writes the INT8 form of an FP32 graph. Arguments: source, target, the source's manifest, and a function to notify."""
_MASK_SEED = 7


@dataclass(frozen=True)
class ExportRequest:
    """The arguments of an export; int8 needs a `quantiser`, and `check` may raise an error to refuse the net."""

    checkpoints: tuple[Path, ...]
    name: str
    images: Path
    generator: str | None = None
    weights: str | None = None  # path of the net in a file that has several
    options: Mapping[str, str] = field(default_factory=dict)
    precision: Precision = "fp16"
    quantiser: Quantiser | None = None
    check: Callable[[Interface], None] | None = None
    max_batch: int = 32
    program: bool = False
    output: Path = Path("models")
    licence: str = "not stated"
    training_data: str = "not stated"
    quality: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ExportResult:
    """A published model, the bars of its graphs, and notes for the user."""

    directory: Path
    manifest: Manifest
    bars: Bars
    notes: tuple[str, ...]


def export_model(request: ExportRequest, notify: Notify) -> ExportResult:
    """Export one model; `notify` is called with the name of each step as it begins.

    Raises:
        ExportError: a step failed; the subclass says which. The repository is unchanged.
    """
    _check_request(request)
    checkpoints, found = _recognised(request, notify)
    notify(f"building {found.family.name}: {found.options}")
    translation = found.family.translate(found.state, found.options)
    net = _load_net(found, translation)
    notify("measuring the net's activations")
    request, measured = _examined(request, found, net)
    with tempfile.TemporaryDirectory(prefix=".export-", dir=request.output) as staging:
        with report_write_errors(request.output):
            graphs = _write_graphs(found, net, Path(staging), notify)
        notify("comparing the graphs with torch")
        bars = found.family.bars(found.options)
        backends = {name: onnx_backend(path) for name, path in graphs.items()}
        cases = _compare_with_torch(found, net, backends, request.images)
        if request.precision == "fp16" and (missed := fp16_missed(cases, bars)):
            request, measured = replace(request, precision="fp32"), [*measured, missed]
        compared = FP32 if request.quantiser else f"onnx-{request.precision}"
        require_parity(cases, bars, compared)
        bars, broken = (bars, []) if request.quantiser else kept_promise(cases, bars, compared)
        manifest = _manifest(request, found, checkpoints, bars, cases)
        if request.quantiser:
            graphs[INT8], manifest = _quantised(request.quantiser, graphs[FP32], manifest, notify)
        files = {ONNX_FILE: graphs[f"onnx-{request.precision}"]}
        if request.program:
            files[PROGRAM_FILE] = Path(staging) / PROGRAM_FILE
            cases += _write_program(found, net, request.precision, files[PROGRAM_FILE], request.images, notify)
            manifest = _manifest(request, found, checkpoints, bars, cases)
        notify(PUBLISHING)
        directory, manifest = _published(request.output, files, manifest)
    return ExportResult(directory, manifest, bars, (*found.notes, *measured, *broken, *translation.notes()))


def _recognised(request: ExportRequest, notify: Notify) -> tuple[list[Checkpoint], RecognisedNet]:
    notify("reading the checkpoint")
    checkpoints = read_checkpoints(request.checkpoints)
    found = recognise(parts_of(checkpoints, request.weights), request.generator, request.options)
    _check_task(request, found)
    unused = notes_on_files(found, {file.path: file.parts for file in checkpoints})
    passed_over = [note for file in checkpoints for note in file.notes()]
    return checkpoints, replace(found, notes=(*found.notes, *unused, *passed_over))


def add_program(
    directory: Path, checkpoints: Sequence[Path], images: Path, notify: Notify, weights: str | None = None
) -> tuple[ParityCase, ...]:
    """Write program.pt2 into a published model's folder with this host's torch; nothing else there changes.

    Returns its comparison with torch FP32.

    Args:
        directory: models/NAME/VERSION, exported anywhere.
        checkpoints: the files it was exported from, in the same order.
        images: pictures to compare the program on.
        notify: called with the name of each step as it begins.
        weights: the path in them that was given to the export, or None if none was.

    Raises:
        ExportError: the checkpoints are not those of the model, there are no pictures, or the program differs from
            torch; the folder is unchanged.
        ManifestInvalid: there is no model in the folder.
    """
    manifest = read_manifest(directory)
    find_pictures(images)  # before the program is written, which can take minutes
    notify("reading the checkpoint")
    files = read_checkpoints(checkpoints)
    if manifest.precision == "int8":
        raise OptionInvalid(f"{manifest.key} is INT8, which has no program; add it to an FP16 model")
    if digest_of(files, weights) != manifest.checkpoint_sha256:
        raise CheckpointRefused(
            f"{manifest.key} was not exported from these files; give the same, in order, with its --weights"
        )
    options = {name: str(value) for name, value in manifest.options.items()}
    found = recognise(parts_of(files, weights), manifest.generator, options)
    net = _load_net(found, found.family.translate(found.state, found.options))
    with tempfile.TemporaryDirectory(prefix=".program-", dir=directory) as staging:
        path = Path(staging) / PROGRAM_FILE
        cases = _write_program(found, net, manifest.precision, path, images, notify)
        path.replace(directory / PROGRAM_FILE)
    return cases


def _check_request(request: ExportRequest) -> None:
    """Check name, options and output first, because the rest takes minutes."""
    check_name(request.name)
    _check_int8(request)
    with report_write_errors(request.output):
        str(request.output).encode("utf-8")  # onnx accepts only such paths
        request.output.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryDirectory(prefix=".export-", dir=request.output).cleanup()


def _load_net(found: RecognisedNet, translation: Translation) -> nn.Module:
    with torch.device("meta"):
        net = found.family.build(found.options)
    load_strictly(net, translation.state)
    return net


def _examined(request: ExportRequest, found: RecognisedNet, net: nn.Module) -> tuple[ExportRequest, list[str]]:
    """Run the net on the pictures before any graph is written.

    Returns:
        The request, in FP32 if FP16 cannot hold the net's activations, and notes on what was measured.

    Raises:
        OptionInvalid: the pictures contradict an option that the file does not show; the message names the right one.
    """
    interface = found.family.interface(found.options)
    samples = parity_inputs(interface, find_pictures(request.images), np.random.default_rng(_MASK_SEED))
    feeds = [sample.feed for sample in samples if sample.name.startswith("ordinary")]
    notes = list(found.family.examine(net, found.options, feeds))
    if request.precision != "fp16":
        return request, notes
    largest = largest_activation(found.family.lower(net, found.options), feeds)
    held = f"largest activation {largest:.4g} on these pictures; FP16 ends at {FP16_MAX:g}"
    if fits_fp16(largest):
        return request, [*notes, held]
    return replace(request, precision="fp32"), [*notes, f"{held}, which is too close: published in FP32 instead"]


def _write_graphs(found: RecognisedNet, net: nn.Module, staging: Path, notify: Notify) -> dict[str, Path]:
    lowered, interface = found.family.lower(net, found.options), found.family.interface(found.options)
    graphs = {name: staging / f"{name}.onnx" for name in (FP32, FP16)}
    notify("writing the FP32 graph")
    write_graph(lowered, interface, graphs[FP32])
    notify("writing the FP16 graph")
    write_graph(to_half(lowered), interface, graphs[FP16])
    return graphs


def _write_program(
    found: RecognisedNet, net: nn.Module, precision: Precision, path: Path, images: Path, notify: Notify
) -> tuple[ParityCase, ...]:
    notify("writing the program")
    lowered, interface = found.family.lower_for_program(net, found.options), found.family.interface(found.options)
    write_program(lowered, interface, precision, path)
    notify("comparing the program with torch")
    cases = _compare_with_torch(found, net, {f"program-{precision}": program_backend(path)}, images)
    if wrong := missed_bars(cases, found.family.bars(found.options)):
        raise ParityFailed(f"no program was written: {'; '.join(wrong)}")
    return cases


def _compare_with_torch(
    found: RecognisedNet, net: nn.Module, backends: Mapping[str, Backend], images: Path
) -> tuple[ParityCase, ...]:
    reference = torch_backend(found.family.wrap(net, found.options).eval())
    samples = parity_inputs(
        found.family.interface(found.options), find_pictures(images), np.random.default_rng(_MASK_SEED)
    )
    return compare(reference, backends, samples)


def _manifest(
    request: ExportRequest,
    found: RecognisedNet,
    checkpoints: list[Checkpoint],
    bars: Bars,
    cases: tuple[ParityCase, ...],
) -> Manifest:
    """Make the manifest of version 1, without the graph's digest; for an INT8 model, of its FP32 graph."""
    interface = found.family.interface(found.options)
    return Manifest(
        name=request.name,
        version=1,
        task=interface.task,
        generator=found.family.name,
        options=found.options.model_dump(),
        inputs=interface.inputs,
        output=interface.output,
        size=interface.size,
        max_batch=min(request.max_batch, interface.largest_batch or request.max_batch),
        precision="fp32" if request.quantiser else request.precision,
        opset=OPSET,
        onnx_sha256="0" * 64,
        checkpoint_sha256=digest_of(checkpoints, request.weights),
        licence=request.licence,
        training_data=request.training_data,
        parity=Parity(bar_db=bars.fp16_psnr_db, fill_levels=bars.fill_levels, cases=cases),
        quality=dict(request.quality),
    )


def _published(output: Path, files: Mapping[str, Path], manifest: Manifest) -> tuple[Path, Manifest]:
    manifest = manifest.model_copy(update={"onnx_sha256": sha256_of(files[ONNX_FILE])})
    with report_write_errors(output):
        return publish(files, output, lambda version: manifest.model_copy(update={"version": version}))


def _check_int8(request: ExportRequest) -> None:
    """Refuse a request for INT8 that lacks something it needs, or has an option that it excludes.

    Raises:
        OptionInvalid: precision int8 without a quantiser, or with a program.
    """
    if (request.precision == "int8") != (request.quantiser is not None):
        raise OptionInvalid("--precision int8 and --calibration belong together: name a folder of photographs")
    if request.quantiser and request.program:
        raise OptionInvalid("there is no INT8 program: leave out --program, or export --precision fp16")


def _check_task(request: ExportRequest, found: RecognisedNet) -> None:
    interface = found.family.interface(found.options)
    if request.check:
        request.check(interface)
    if request.quantiser and (task := interface.task) != "inpaint":
        raise OptionInvalid(f"INT8 is measured in holes, and this net's task is {task}: export --precision fp16")


def _quantised(quantiser: Quantiser, graph: Path, manifest: Manifest, notify: Notify) -> tuple[Path, Manifest]:
    """Return the INT8 graph and its manifest, without `fill_levels` and with the PSNR of the gate's worst picture."""
    target = graph.with_name(f"{INT8}.onnx")
    quantisation = quantiser(graph, target, manifest, notify)
    parity = manifest.parity.model_copy(update={"bar_db": WORST_DB, "fill_levels": None})
    return target, manifest.model_copy(update={"precision": "int8", "quantisation": quantisation, "parity": parity})
