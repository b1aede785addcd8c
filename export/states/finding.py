"""Finds the state dicts in a loaded file: wrappers opened, optimizers skipped, prefixes of wrapping modules removed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

from export.generators.family import State

_PREFIXES = ("module.", "_orig_mod.")
_WRAPPED = re.compile(r"(?:_orig_mod|_forward_module|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
"""Names that torch.compile, Lightning's Fabric, FSDP and checkpointing put into the keys of a module they wrap."""
_NET_PREFIX = re.compile(
    r"_?(?:net_?)?(?:g|gen|generator)(?:_\w+|[ab](?:2[ab]|to[ab])?|\d+)?|\w*generator\w*|\w*netg(?:_\w+)?"
    r"|ema\w*|\w+_ema|_?model|_?net|network|inpaint\w*|\w*u_?net\w*|\w*resnet|backbone|student|pconv\w*|lama|painter",
    re.IGNORECASE,
)
"""First components of keys under which training scripts keep whole nets, as in `generator.enc_1.conv.weight`."""
_PROFILED = re.compile(r"(?:.*\.)?total_(?:ops|params)")
"""Keys that thop, a counter of operations, leaves in every module."""
_NOT_WEIGHTS = re.compile(r"optim|sched|param_groups|scaler|rng", re.IGNORECASE)
AVERAGE = re.compile(r"(?:^|[^a-z])ema|ema(?:$|[^a-z])|swa|averag|shadow", re.IGNORECASE)
"""Paths of averaged weights; no part of `semantic`."""
_COUNTS = frozenset({"n_averaged", "steps", "step", "initted", "num_updates", "decay"})
"""Names of the numbers that averaging keeps beside the weights."""
_BACKUP = re.compile(r"collected|backup|stored", re.IGNORECASE)
"""Lists beside the averages that hold the net's own weights while the averages are in use."""
MAX_NAME_LENGTH = 500
"""Largest length of a tensor's name, and of the name of something that is opened; real ones have about 100."""
_MAX_WRAPPER_DEPTH, _MAX_PREFIX_DEPTH, _MAX_LIST_LENGTH = 4, 2, 16


@dataclass(frozen=True)
class StateDict:
    """One state dict of a file: FP32 or integer tensors on the CPU, and its path inside the file."""

    path: str
    """Path inside the file, as in `model` or `checkpoint/generator`; empty if the file itself is the state dict."""
    state: State
    made_of: tuple[StateDict, ...] = ()
    """The parts, also of other files, that gave names to its tensors; empty if the file has the names."""


@dataclass(frozen=True)
class UnnamedTensors:
    """Averaged weights as a list, in the order of a net's parameters, and its path inside the file."""

    path: str
    tensors: tuple[Tensor, ...]


def unnamed_averages(value: object, check: Callable[[Tensor, str], Tensor]) -> Iterator[UnnamedTensors]:
    """Yield the lists of averaged weights in a loaded value; `check` as for `state_dicts`."""
    yield from (
        UnnamedTensors(path, tuple(check(tensor, f"{path}[{number}]") for number, tensor in enumerate(inner)))
        for where, mapping in _mappings(value, "", 0, {})
        for key, inner in mapping.items()
        if isinstance(key, str) and len(key) <= MAX_NAME_LENGTH and isinstance(inner, list | tuple) and inner
        if all(isinstance(one, Tensor) and one.is_floating_point() for one in inner)
        if AVERAGE.search(path := f"{where}/{key}".lstrip("/")) and not _BACKUP.search(key)
    )


def state_dicts(value: object, check: Callable[[Tensor, str], Tensor]) -> Iterator[StateDict]:
    """Yield every state dict in a loaded value, and the nets under the prefixes of their keys.

    Args:
        value: what a file holds.
        check: returns a tensor, named by its key, as a weight; raises if it cannot be one.
    """
    for where, mapping in _mappings(value, "", 0, {}):
        state = {key: tensor for key, tensor in mapping.items() if isinstance(key, str) and isinstance(tensor, Tensor)}
        if not state:
            continue
        checked = {name: check(tensor, name) for name, tensor in state.items()}
        yield from _with_nets_by_prefix(StateDict(where, _without_prefixes(checked, where)), _MAX_PREFIX_DEPTH)


def _mappings(
    value: object, where: str, depth: int, seen: dict[int, int]
) -> Iterator[tuple[str, Mapping[object, object]]]:
    """Yield each mapping with its path; `seen` maps the id of an opened container to its depth, against cycles."""
    if seen.get(id(value), _MAX_WRAPPER_DEPTH + 1) <= depth:
        return
    if isinstance(value, list | tuple) and len(value) <= _MAX_LIST_LENGTH:  # of nets
        inside: dict[object, object] = {str(number): inner for number, inner in enumerate(value)}
    elif isinstance(value, Mapping):
        inside = dict(value)
    else:
        return
    seen[id(value)] = depth
    if isinstance(value, Mapping):
        yield where, value
    for key, inner in inside.items():
        if isinstance(key, str) and len(key) <= MAX_NAME_LENGTH and not _NOT_WEIGHTS.search(key):
            yield from _mappings(inner, f"{where}/{key}".lstrip("/"), depth + 1, seen)


def _with_nets_by_prefix(part: StateDict, depth: int) -> Iterator[StateDict]:
    """Yield a part and the nets under its key prefixes, also nested: `netG` in `model.netG.enc_1.conv.weight`."""
    yield part
    if depth:
        for net in _nets_by_prefix(part):
            yield from _with_nets_by_prefix(net, depth - 1)


def _nets_by_prefix(part: StateDict) -> Iterator[StateDict]:
    nets: dict[str, State] = {}
    for key, tensor in part.state.items():
        prefix, _, rest = key.partition(".")
        if rest and _NET_PREFIX.fullmatch(prefix):
            nets.setdefault(prefix, {})[rest] = tensor
    for prefix, state in nets.items():
        path = f"{part.path}/{prefix}".lstrip("/")
        yield StateDict(path, _without_prefixes(state, path))


def _without_prefixes(state: State, path: str) -> State:
    """Remove what wrappers of nets add: parts of keys, and the numbers beside averages, as torch's `n_averaged`."""
    if any(_WRAPPED.search(name) or _PROFILED.fullmatch(name) for name in state):
        state = {_WRAPPED.sub("", name): tensor for name, tensor in state.items() if not _PROFILED.fullmatch(name)}
    if AVERAGE.search(path) or any(name.startswith(_PREFIXES) for name in state):
        state = {name: tensor for name, tensor in state.items() if name not in _COUNTS or tensor.numel() > 1}
    while state and (prefix := next((p for p in _PREFIXES if all(name.startswith(p) for name in state)), None)):
        state = {name.removeprefix(prefix): tensor for name, tensor in state.items()}
    return state
