"""The interface of a generator family: one subclass per file, and one line in the table of families.

A family has three forms of a net, each made from the one before:

    build   the public code's module tree, so that public state dicts load strictly and ours load there
    wrap    the same net behind the tensor contract of engines/manifest.py, in FP32: the reference of every comparison
    lower   the same function rewritten for a graph: constants folded, layers that must stay FP32 marked, ready for FP16
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from engines.manifest import SizeRule, Task, TensorSpec

State = dict[str, Tensor]


class GeneratorOptions(BaseModel):
    """The base of each family's options: typed, with defaults; unknown names are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


OptionsT = TypeVar("OptionsT", bound=GeneratorOptions)


@dataclass(frozen=True)
class Interface:
    """The task, tensors and size rule of a graph, as they go into the manifest."""

    task: Task
    inputs: tuple[TensorSpec, ...]
    output: TensorSpec
    size: SizeRule
    largest_batch: int | None = None
    """The most pictures in one batch, for nets that need much memory per picture; None for no limit."""


@dataclass(frozen=True)
class Translation:
    """A state dict in the layout that `build` expects, and the changes that were made to it."""

    state: State
    dropped: Mapping[str, str] = field(default_factory=dict)
    """Keys of the file that the net does not need, each with the reason."""
    added: Mapping[str, str] = field(default_factory=dict)
    """Constant keys that the file leaves out, each with the value it was given."""

    def notes(self) -> list[str]:
        """Return a sentence on each change."""
        dropped = [f"dropped {key}: {reason}" for key, reason in self.dropped.items()]
        if self.added:
            dropped.append(f"{len(self.added)} constant keys were not in the file and were added as ones")
        return dropped


@dataclass(frozen=True)
class Bars:
    """The largest accepted deviation of a graph from torch FP32, on the [0, 1] output scale, before clamping."""

    fp32_max_abs: float = 1e-4
    fp32_psnr_db: float = 80.0
    fp16_psnr_db: float = 45.0
    fill_levels: float | None = None
    """Most grey levels of 255 by which a fill on a CPU may differ, promised for nets that also run in other servers."""


class Family(ABC, Generic[OptionsT]):
    """A family of generators whose checkpoints have the same key layout."""

    name: ClassVar[str]
    """The value of `--generator`."""
    summary: ClassVar[str]
    """One line for cards and `--help`: the paper and the public repository whose layout it reads."""
    options: type[OptionsT]

    @abstractmethod
    def recognise(self, state: State) -> OptionsT | None:
        """Return the options of a net with these keys and shapes; None if it is not of this family."""

    def join(self, states: Sequence[State]) -> State | None:  # noqa: ARG002 (families of several nets override)
        """Join the state dicts of several files with equal keys into one; None if they do not belong together."""
        return None

    @abstractmethod
    def build(self, options: OptionsT) -> nn.Module:
        """Build the public net; its parameters may be on the meta device until the checkpoint is loaded."""

    def translate(self, state: State, options: OptionsT) -> Translation:  # noqa: ARG002 (families that need them override)
        """Convert a public state dict: drop unused keys and add constants that files leave out."""
        return Translation(state)

    @abstractmethod
    def interface(self, options: OptionsT) -> Interface:
        """Return the task, tensors and size rule of the net."""

    def bars(self, options: OptionsT) -> Bars:  # noqa: ARG002 (as above)
        """Return the accepted deviation; families whose nets amplify rounding accept more, and document why."""
        return Bars()

    def examine(
        self,
        net: nn.Module,  # noqa: ARG002 (families whose files leave an option open override)
        options: OptionsT,  # noqa: ARG002
        feeds: Sequence[Mapping[str, NDArray[Any]]],  # noqa: ARG002
    ) -> Sequence[str]:
        """Check, by running real inputs, options that a file does not show; return notes for the report.

        Raises:
            OptionInvalid: the outputs contradict an option; the message names the value that fits.
        """
        return ()

    @abstractmethod
    def wrap(self, net: nn.Module, options: OptionsT) -> nn.Module:
        """Wrap the net in the tensor contract, in FP32; `forward` takes the interface's inputs in their order."""

    @abstractmethod
    def lower(self, net: nn.Module, options: OptionsT) -> nn.Module:
        """Return a rewritten copy for the graph, whose convolutions may then become FP16; `net` is unchanged."""

    def lower_for_program(self, net: nn.Module, options: OptionsT) -> nn.Module:
        """Return a rewritten copy for program.pt2: the graph's, unless another form is faster on a GPU."""
        return self.lower(net, options)


def without_statistics(state: State) -> Translation:
    """Drop running statistics of instance norms, which torch versions before 2018 saved and never used."""
    stale = {key for key in state if key.endswith((".running_mean", ".running_var", ".num_batches_tracked"))}
    kept = {key: tensor for key, tensor in state.items() if key not in stale}
    return Translation(kept, dropped=dict.fromkeys(sorted(stale), "unused statistics of an old instance norm"))


def image_tensor(name: str, channels: int, *, side: tuple[int, int] | None = None) -> TensorSpec:
    """Describe a float N×C×H×W tensor: dynamic height and width, or fixed to `side` = (height, width)."""
    height, width = side or ("height", "width")
    return TensorSpec.model_validate({"name": name, "dtype": "float32", "shape": ("batch", channels, height, width)})


def label_map(classes: int) -> TensorSpec:
    """Describe the `label` input: class ids, N×1×H×W."""
    return TensorSpec(name="label", dtype="uint8", shape=("batch", 1, "height", "width"), classes=classes)


def instance_map() -> TensorSpec:
    """Describe the `instance` input: ids that are only compared with each other, N×1×H×W."""
    return TensorSpec(name="instance", dtype="int32", shape=("batch", 1, "height", "width"))
