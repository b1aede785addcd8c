"""What a family of generators tells the rest of the export: one subclass per file, one line in the table.

A family has three forms of a net, each made from the one before:

    build   the public code's module tree, so that public state dicts load strictly and ours load there
    wrap    the same net behind the tensor contract of engines/manifest.py, in FP32: the reference of every comparison
    lower   the same function rearranged for a graph: constants folded, FP32 islands explicit, ready for FP16
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from engines.manifest import SizeRule, Task, TensorSpec

State = dict[str, Tensor]


class GeneratorOptions(BaseModel):
    """Base of every family's options: typed, with defaults, unknown names refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


OptionsT = TypeVar("OptionsT", bound=GeneratorOptions)


@dataclass(frozen=True)
class Interface:
    """The graph's side of the tensor contract."""

    task: Task
    inputs: tuple[TensorSpec, ...]
    output: TensorSpec
    size: SizeRule


@dataclass(frozen=True)
class Translation:
    """A state dict in the layout that `build` expects, and what was changed to get there."""

    state: State
    dropped: Mapping[str, str] = field(default_factory=dict)
    """Keys of the file that the net does not need, each with the reason."""
    added: Mapping[str, str] = field(default_factory=dict)
    """Constant keys that the file leaves out, each with the value it was given."""


@dataclass(frozen=True)
class Bars:
    """How far a graph may stray from torch FP32, on the [0, 1] output scale, before clamping."""

    fp32_max_abs: float = 1e-4
    fp32_psnr_db: float = 80.0
    fp16_psnr_db: float = 45.0


class Family(ABC, Generic[OptionsT]):
    """One family of generators with a common key layout."""

    name: ClassVar[str]
    """The value of `--generator`."""
    summary: ClassVar[str]
    """One line for cards and `--help`: the paper and the public repository whose layout it reads."""
    options: type[OptionsT]

    @abstractmethod
    def recognise(self, state: State) -> OptionsT | None:
        """The options that made a net with these keys and shapes, or None where it is not of this family."""

    def join(self, states: Sequence[State]) -> State | None:  # noqa: ARG002 (families of several nets override)
        """One state of several files' nets whose keys are alike; None where these are no such nets."""
        return None

    @abstractmethod
    def build(self, options: OptionsT) -> nn.Module:
        """The public net; its parameters may live on the meta device and are assigned from the checkpoint."""

    def translate(self, state: State, options: OptionsT) -> Translation:  # noqa: ARG002 (families that need them override)
        """Drop what the net does not need and add constants that files leave out."""
        return Translation(state)

    @abstractmethod
    def interface(self, options: OptionsT) -> Interface:
        """Task, tensors and size rule."""

    def bars(self, options: OptionsT) -> Bars:  # noqa: ARG002 (as above)
        """How far the graphs may stray; families whose nets amplify rounding allow more, with the reason."""
        return Bars()

    @abstractmethod
    def wrap(self, net: nn.Module, options: OptionsT) -> nn.Module:
        """The net behind the tensor contract, FP32; `forward` takes the interface's inputs in their order."""

    @abstractmethod
    def lower(self, net: nn.Module, options: OptionsT) -> nn.Module:
        """The same function for the graph; `net` is not changed. Convolutions may afterwards be made half."""


def without_statistics(state: State) -> Translation:
    """Drop running statistics, which instance norms of before 2018 saved and never used."""
    stale = {key for key in state if key.endswith((".running_mean", ".running_var", ".num_batches_tracked"))}
    kept = {key: tensor for key, tensor in state.items() if key not in stale}
    return Translation(kept, dropped=dict.fromkeys(sorted(stale), "unused statistics of an old instance norm"))


def image_tensor(name: str, channels: int, *, side: tuple[int, int] | None = None) -> TensorSpec:
    """A float N×C×H×W tensor: dynamic height and width, or fixed to `side` = (height, width)."""
    height, width = side or ("height", "width")
    return TensorSpec.model_validate({"name": name, "dtype": "float32", "shape": ("batch", channels, height, width)})


def label_map(classes: int) -> TensorSpec:
    """The `label` input: class ids, N×1×H×W."""
    return TensorSpec(name="label", dtype="uint8", shape=("batch", 1, "height", "width"), classes=classes)


def instance_map() -> TensorSpec:
    """The `instance` input: ids that are only compared with each other, N×1×H×W."""
    return TensorSpec(name="instance", dtype="int32", shape=("batch", 1, "height", "width"))
