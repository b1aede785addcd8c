"""Finds the picture, the mask and the result among a graph's inputs and outputs, by shapes and names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx
from onnx import TensorProto, ValueInfoProto

from export.errors import GraphRefused
from export.foreign.declaration import Declaration, InputSlice, Layout

_TYPES: dict[int, str] = {
    TensorProto.FLOAT: "float32",
    TensorProto.FLOAT16: "float16",
    TensorProto.DOUBLE: "float64",
    TensorProto.UINT8: "uint8",
    TensorProto.INT32: "int32",
    TensorProto.INT64: "int64",
    TensorProto.BOOL: "bool",
}
_MAX_CHANNELS = 8


@dataclass(frozen=True)
class Port:
    """An input of the graph. Dimensions are N, channels, height, width, whatever the layout; None is free."""

    name: str
    dtype: str
    dims: tuple[int | None, int | None, int | None, int | None]
    layout: Layout

    def __str__(self) -> str:
        return f"{self.name} {self.dtype} {'×'.join('free' if d is None else str(d) for d in self.dims)}"


@dataclass(frozen=True)
class Ports:
    """The inputs for picture and mask, as one or several candidates, and the output."""

    inputs: tuple[Port, ...]
    candidates: tuple[tuple[InputSlice, InputSlice], ...]
    """Pairs of (picture, mask); trials decide between several."""
    output: str

    def port(self, source: InputSlice) -> Port:
        """Return the input that holds the source."""
        return next(port for port in self.inputs if port.name == source.name)

    @property
    def layout(self) -> Layout:
        return self.inputs[0].layout

    @property
    def side(self) -> tuple[int, int] | None:
        """Height and width if they are fixed."""
        _, _, height, width = self.inputs[0].dims
        return None if height is None or width is None else (height, width)

    @property
    def max_rows(self) -> int | None:
        """The fixed number of pictures; None if it is free."""
        return self.inputs[0].dims[0]


def find_ports(model: onnx.ModelProto, declared: Declaration) -> tuple[Ports, list[str]]:
    """Find the ports; returns them with a sentence on each guess.

    Raises:
        GraphRefused: an input or output has no known use, or a form that the contract cannot be wired to; the message
            lists what the graph has and which flag is missing.
    """
    constants = {tensor.name for tensor in model.graph.initializer}
    values = [value for value in model.graph.input if value.name not in constants]
    layout = declared.layout or _guess_layout(values)
    inputs = tuple(_port(value, layout) for value in values)
    candidates = tuple(_candidates(inputs, declared))
    used = {source.name for source in candidates[0]}
    for port in inputs:
        if port.name not in used:
            raise GraphRefused(f"the graph has another input, {port}, which is neither the picture nor the mask")
    chosen = tuple(port for port in inputs if port.name in used)
    _check_together(chosen)
    output = _output(model, declared)
    found = [] if declared.layout else [f"layout: {layout}, after the shape of {inputs[0].name!r}"]
    if (declared.image is None or declared.mask is None) and len(candidates) == 1:
        image, mask = candidates[0]
        found.append(f"picture: {image}; mask: {mask}, after shapes and names ({'; '.join(map(str, inputs))})")
    if declared.output is None:
        found.append(f"result: {output}")
    return Ports(chosen, candidates, output), found


def _guess_layout(values: Sequence[ValueInfoProto]) -> Layout:
    """Guess that channels are last if some last dimension is small and the second one is not."""
    for value in values:
        dims = value.type.tensor_type.shape.dim
        if len(dims) == 4 and 0 < dims[3].dim_value <= _MAX_CHANNELS and not 0 < dims[1].dim_value <= _MAX_CHANNELS:
            return "nhwc"
    return "nchw"


def _port(value: ValueInfoProto, layout: Layout) -> Port:
    tensor = value.type.tensor_type
    dtype = _TYPES.get(tensor.elem_type)
    if not value.type.HasField("tensor_type") or dtype is None:
        raise GraphRefused(f"input {value.name!r} is not a tensor of plain numbers")
    if len(tensor.shape.dim) != 4:
        raise GraphRefused(f"input {value.name!r} has {len(tensor.shape.dim)} dimensions; pictures and masks have four")
    dims = [d.dim_value if d.HasField("dim_value") and d.dim_value > 0 else None for d in tensor.shape.dim]
    if layout == "nhwc":
        dims = [dims[0], dims[3], dims[1], dims[2]]
    return Port(value.name, dtype, (dims[0], dims[1], dims[2], dims[3]), layout)


def _candidates(inputs: Sequence[Port], declared: Declaration) -> Iterator[tuple[InputSlice, InputSlice]]:
    names = {port.name: port for port in inputs}
    for source, flag in ((declared.image, "--image"), (declared.mask, "--mask")):
        if source is not None and source.name not in names:
            raise GraphRefused(f"{flag} {source}: the graph has no such input; it has {_listed(inputs)}")
    if declared.image is not None and declared.mask is not None:
        yield declared.image, declared.mask
    elif len(inputs) == 1 and inputs[0].dims[1] == 4:
        name = inputs[0].name
        for first, after, mask in ((0, 3, 3), (1, 4, 0)):
            yield InputSlice(name=name, channels=(first, after)), InputSlice(name=name, channels=(mask, mask + 1))
    elif len(inputs) == 1 and inputs[0].dims[1] in (1, 2, 3):
        raise GraphRefused(
            f"the graph has {_listed(inputs)} and no mask, and only inpainting graphs can be imported; a net that "
            "translates pictures becomes a model from its checkpoint, by retouch export"
        )
    elif len(inputs) == 2:
        yield _picture_and_mask(inputs, declared)
    else:
        raise GraphRefused(
            f"which input is the picture and which the mask? The graph has {_listed(inputs)}; name them with --image "
            "and --mask (of one input with both: --image NAME[0:3] --mask NAME[3])"
        )


def _picture_and_mask(inputs: Sequence[Port], declared: Declaration) -> tuple[InputSlice, InputSlice]:
    if declared.image is not None or declared.mask is not None:
        said = declared.image or declared.mask
        rest = next((port for port in inputs if said is not None and port.name != said.name), inputs[0])
        other = InputSlice(name=rest.name)
        return (declared.image, other) if declared.image is not None else (other, declared.mask or other)
    masks = [port for port in inputs if port.dims[1] == 1] or [port for port in inputs if "mask" in port.name.lower()]
    if len(masks) != 1:
        raise GraphRefused(
            f"which input is the mask? The graph has {_listed(inputs)}; name them with --image and --mask"
        )
    picture = next(port for port in inputs if port is not masks[0])
    return InputSlice(name=picture.name), InputSlice(name=masks[0].name)


def _check_together(inputs: Sequence[Port]) -> None:
    heights_and_widths = {port.dims[2:] for port in inputs}
    if len(heights_and_widths) != 1 or len({None in side for side in heights_and_widths}) != 1:
        raise GraphRefused(f"picture and mask must have the same size; the graph has {_listed(inputs)}")
    (side,) = heights_and_widths
    if (side[0] is None) != (side[1] is None):
        raise GraphRefused(f"height and width must be both fixed or both dynamic; the graph has {_listed(inputs)}")
    if len({port.dims[0] for port in inputs}) != 1 or inputs[0].dims[0] not in (None, 1):
        raise GraphRefused(f"the batch size must be dynamic or 1; the graph has {_listed(inputs)}")


def _output(model: onnx.ModelProto, declared: Declaration) -> str:
    names = [value.name for value in model.graph.output]
    if declared.output is not None and declared.output not in names:
        raise GraphRefused(
            f"--output-tensor {declared.output}: the graph has no such output; it has {', '.join(names)}"
        )
    if declared.output is None and len(names) != 1:
        raise GraphRefused(
            f"which output is the picture? The graph has {', '.join(names)}; name it with --output-tensor"
        )
    return declared.output or names[0]


def _listed(inputs: Sequence[Port]) -> str:
    return "; ".join(map(str, inputs)) or "no inputs"
