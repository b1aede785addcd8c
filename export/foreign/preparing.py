"""The work of the child: from a foreign file to a wrapped graph that passed its checks, in the scratch folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

from engines.manifest import FixedSize, MultipleSize, ParityCase, SizeRule, TensorSpec
from export.errors import GraphRefused
from export.foreign.deciding import Decision, decide
from export.foreign.declaration import Declaration
from export.foreign.guard.policy import check_policy
from export.foreign.guard.reading import read_model
from export.foreign.guard.sizes import InferredSizes, check_sizes
from export.foreign.messages import GRAPH_FILE, Imported, Job
from export.foreign.observing import Net, Observed, Probe, find_faults, keeps_known, shows_known
from export.foreign.ports import Ports, find_ports
from export.foreign.wiring import Array, contract_output, net_inputs
from export.foreign.wrapping import tensor_specs, wrapped
from export.parity_inputs import ParityInput, find_pictures, parity_inputs

_USUAL_SIDES = (256, 512)
_USUAL_MULTIPLE = 8
_SEED = 11
REFERENCE_DB = 60.0
"""The least PSNR in dB of the wrapped graph against the file's own graph."""
_SAME_ROW = 2 / 255
_MAX_OPSET_OF_TENSORRT_8 = 17
_NOTEWORTHY_BYTES = 2**26


@dataclass(frozen=True)
class _Contract:
    """The tensors and sizes that the test pictures and masks are made for."""

    inputs: tuple[TensorSpec, ...]
    size: SizeRule


def import_graph(job: Job, notify: Callable[[str], None]) -> Imported:
    """Read, wrap and check a graph; write it to the scratch folder.

    Raises:
        ExportError: the file is refused; the message says why and what would mend it.
    """
    notify("reading the graph")
    model, digest = read_model(job.graph)
    check_policy(model)
    ports, found = find_ports(model, job.declaration)
    size = _size_rule(ports, job.declaration)
    sizes = _check_sizes(model, ports, size)
    net = Net(model, ports.output)
    notify("trying it on photographs")
    (inputs, output), pictures = tensor_specs(ports), find_pictures(job.pictures)
    samples = list(parity_inputs(_Contract(inputs, size), pictures, np.random.default_rng(_SEED)))
    decision = decide(net, ports, job.declaration, _result_type(model, ports), _probe(samples[0]))
    composites = _composites_everywhere(net, decision, job.declaration, samples)
    rows, batch_note = _rows(net, decision, ports, samples)
    notify("wrapping it")
    result = wrapped(model, decision.wiring)
    _write(result, job.scratch / GRAPH_FILE)
    notify("comparing the wrapped graph with the file's own")
    cases = _compare(net, Net(result, "output"), decision, samples, rows)
    return Imported(
        flags={**decision.wiring.flags(), "composite": "inside" if composites else "outside"},
        found=(*found, *decision.found, *_composite_found(job.declaration, composites=composites)),
        notes=(*batch_note, *_notes(model, sizes)),
        inputs=inputs,
        output=output,
        size=size,
        max_rows=rows,
        precision="fp16" if _has_halves(model) else "fp32",
        opset=model.opset_import[0].version,
        source_sha256=digest,
        cases=cases,
    )


def _size_rule(ports: Ports, declared: Declaration) -> SizeRule:
    if ports.side is not None:
        chosen = {"--sides": declared.sides, "--multiple-of": declared.multiple_of}
        if flags := [flag for flag, value in chosen.items() if value]:
            raise GraphRefused(
                f"the graph computes {ports.side[1]}×{ports.side[0]} only: no sides can be chosen; leave out "
                f"{' and '.join(flags)}"
            )
        return FixedSize(height=ports.side[0], width=ports.side[1], fit="crop")
    multiple = declared.multiple_of or _USUAL_MULTIPLE
    try:
        return MultipleSize(multiple_of=multiple, sides=declared.sides or _USUAL_SIDES)
    except ValueError as error:
        raise GraphRefused(
            f"--sides {','.join(map(str, declared.sides))}: they must ascend and be multiples of "
            f"{multiple} (--multiple-of)"
        ) from error


def _check_sizes(model: onnx.ModelProto, ports: Ports, size: SizeRule) -> InferredSizes:
    height, width = max(size.tile_sizes())
    dims = {}
    for port in ports.inputs:
        channels = port.dims[1] or 4
        dims[port.name] = (1, channels, height, width) if port.layout == "nchw" else (1, height, width, channels)
    return check_sizes(model, dims)


def _probe(sample: ParityInput) -> Probe:
    return Probe(sample.feed["image"][:1], sample.feed["mask"][:1])


def _composites_everywhere(net: Net, decision: Decision, declared: Declaration, samples: list[ParityInput]) -> bool:
    """Check the decision, made on one photograph, on the other ones and in the second size.

    Returns:
        Whether known pixels come back unchanged on all of them.
    """
    kept = decision.composites
    said = None if declared.composite is None else declared.composite == "inside"
    for sample in samples[1:]:
        if sample.name.startswith("ordinary") or "×" in sample.name:
            observed = Observed(net, decision.wiring, _probe(sample))
            if faults := find_faults(decision.wiring, observed, composites=said):
                raise GraphRefused(
                    f"on {sample.name} the graph does not inpaint as on the first photograph: {faults[0]}"
                )
            kept = kept and (keeps_known(decision.wiring, observed) or not shows_known(observed))
    return kept


def _rows(net: Net, decision: Decision, ports: Ports, samples: list[ParityInput]) -> tuple[int | None, list[str]]:
    """Check whether a batch gives each picture the result that it gives it alone.

    Returns:
        The most rows of a batch, None for any number; and a note if it is 1.
    """
    if ports.max_rows is not None:
        return ports.max_rows, ["the graph takes one picture at a time, so requests do not share batches"]
    several = next(sample.feed for sample in samples if sample.name == "batch of 3")
    image, mask = several["image"].copy(), several["mask"].copy()
    image[1:], mask[1:] = image[1:, :, ::-1], mask[1:, :, ::-1, ::-1]  # rows with other pictures and holes
    try:
        together = _run(net, decision, image, mask)
    except GraphRefused:
        return 1, ["the graph fails on a batch of three, so it is served one picture at a time"]
    alone = [_run(net, decision, image[row : row + 1], mask[row : row + 1]) for row in range(len(image))]
    if together.shape != image.shape or float(np.abs(together - np.concatenate(alone)).max()) > _SAME_ROW:
        return 1, ["in a batch pictures change each other, so it is served one picture at a time"]
    return None, []


def _run(net: Net, decision: Decision, image: Array, mask: Array) -> Array:
    return contract_output(decision.wiring, net.run(net_inputs(decision.wiring, image, mask)))


def _compare(
    net: Net, result: Net, decision: Decision, samples: list[ParityInput], rows: int | None
) -> tuple[ParityCase, ...]:
    cases = []
    for sample in samples:
        image, mask = sample.feed["image"], sample.feed["mask"]
        if rows is not None and len(image) > rows:
            continue
        wanted, got = _run(net, decision, image, mask), result.run(sample.feed)
        finite = bool(np.isfinite(wanted).all() and np.isfinite(got).all())
        if wanted.shape != got.shape or not finite:
            raise GraphRefused(
                f"on {sample.name} the graph gives NaN or infinity, or another size; it cannot be served"
            )
        error = float(np.mean(np.square(got.astype(np.float64) - wanted)))
        psnr = None if error == 0 else round(-10 * float(np.log10(error)), 2)
        if psnr is not None and psnr < REFERENCE_DB:
            raise GraphRefused(f"on {sample.name} the wrapped graph differs from the file's own: {psnr:.1f} dB")
        largest = float(np.abs(got - wanted).max())
        cases.append(ParityCase(backend="onnx", inputs=sample.name, psnr_db=psnr, max_abs=largest, finite=finite))
    return tuple(cases)


def _composite_found(declared: Declaration, *, composites: bool) -> Iterator[str]:
    if declared.composite is None:
        where = "inside, known pixels come back unchanged" if composites else "outside, known pixels come back changed"
        yield f"composite: {where}"


def _notes(model: onnx.ModelProto, sizes: InferredSizes) -> Iterator[str]:
    name, dims, size = sizes.largest
    if size > _NOTEWORTHY_BYTES:
        yield f"largest tensor inside: {name}, {'×'.join(map(str, dims))}, {size / 2**20:.0f} MiB for one picture"
    if sizes.unknown:
        yield (
            f"the sizes of {len(sizes.unknown)} tensors cannot be known beforehand (one is {sizes.unknown[0]}): they "
            "kept the memory limit on the pictures tried, and might not on others"
        )
    if (opset := model.opset_import[0].version) > _MAX_OPSET_OF_TENSORRT_8:
        yield f"opset {opset}: TensorRT 8.6 stops at {_MAX_OPSET_OF_TENSORRT_8}; other engines run it"


def _result_type(model: onnx.ModelProto, ports: Ports) -> str:
    value = next(value for value in model.graph.output if value.name == ports.output)
    name: str = TensorProto.DataType.Name(value.type.tensor_type.elem_type)
    return name.lower()


def _has_halves(model: onnx.ModelProto) -> bool:
    return any(tensor.data_type == TensorProto.FLOAT16 and len(tensor.dims) > 1 for tensor in model.graph.initializer)


def _write(model: onnx.ModelProto, path: Path) -> None:
    try:
        onnx.checker.check_model(model)
        path.write_bytes(model.SerializeToString())
    except (onnx.checker.ValidationError, ValueError) as error:
        raise GraphRefused(f"the wrapped graph is not valid ONNX: {next(iter(str(error).splitlines()), '')}") from error
