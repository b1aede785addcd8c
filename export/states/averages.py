"""Gives averaged weights the names and buffers that training scripts leave out when they save them.

Averages come as a list in the order of the net's parameters (torch_ema and diffusers, `shadow_params`), as parameters
without buffers, or under names without dots (`model_ema.encconvweight` for `enc.conv.weight`). Each is completed by the
state dict of the net itself; where that is not unique, nothing is guessed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from export.generators.family import State
from export.states.finding import AVERAGE, StateDict, UnnamedTensors

_BUFFER = re.compile(r"(?:.*\.)?(?:running_mean|running_var|num_batches_tracked|\w+_u|0\._[uv])")
"""Keys of tensors that no optimizer moves, so that they are in no list of parameters."""
_SPECTRAL_V = "_v"


def completed(parts: Sequence[StateDict]) -> list[StateDict]:
    """Return the parts, where averages under names have what only the net's own state dict has, such as buffers."""
    nets = [part for part in parts if not AVERAGE.search(part.path)]
    return [_completed(part, nets) if AVERAGE.search(part.path) else part for part in parts]


def _completed(part: StateDict, nets: Sequence[StateDict]) -> StateDict:
    fitting = [(net, named) for net in nets if (named := _named_like(part.state, net.state)) is not None]
    own = [each for each in fitting if (name := each[0].path.rpartition("/")[2]) and name in part.path]
    chosen = own if len(own) == 1 else fitting
    if not _are_one_net([net for net, _ in chosen]):
        return part
    net, named = chosen[0]
    return StateDict(part.path, {**net.state, **named})


def _named_like(state: State, net: State) -> State | None:
    """Return averages under the net's names; None if they are not some of its tensors, or already all under them."""
    dotless = {key.replace(".", ""): key for key in net} if not any("." in key for key in state) else {}
    named = {dotless.get(key, key): tensor for key, tensor in state.items()}
    fits = all(key in net and net[key].shape == tensor.shape for key, tensor in named.items())
    whole = named.keys() == net.keys() == state.keys()
    return named if fits and named and not whole and len(named) == len(state) else None


def named_averages(averages: UnnamedTensors, parts: Iterable[Ordered]) -> StateDict | None:
    """Return the state dict that the averages belong to, with them in place of its parameters.

    None if no state dict has parameters of their shapes in their order, or several have.
    """
    shapes = tuple(tensor.shape for tensor in averages.tensors)
    found = [(each, first) for each in parts if (first := each.orders.get(shapes)) is not None]
    if not _are_one_net([each.part for each, _ in found]):
        return None
    (part, first), state = (found[0][0].part, found[0][1]), found[0][0].part.state
    named = dict(zip(dict.fromkeys(first.values()), averages.tensors, strict=True))
    return StateDict(averages.path, {**state, **{key: named[other] for key, other in first.items()}}, (part,))


@dataclass(frozen=True)
class Ordered:
    """A part with the orders in which a list may have its parameters."""

    part: StateDict
    orders: Mapping[tuple[torch.Size, ...], Mapping[str, str]]
    """Shapes of a list's tensors to the keys that it has, each with the key of the tensor that it is."""


def in_order(part: StateDict) -> Ordered:
    """Return the orders of a part; a list has all parameters, or those alone that are no constant kernels.

    Constant kernels are not trained; tied weights are in a list once.
    """
    state = part.state
    keys = [key for key, tensor in state.items() if tensor.is_floating_point() and not _is_buffer(key, state)]
    if _are_sorted(keys):
        return Ordered(part, {})
    trained = [key for key in keys if state[key].ndim < 2 or not _is_constant(state[key])]
    tied = [_first_of_tied(chosen, state) for chosen in (trained, keys)]  # if both have the same shapes, all are taken
    return Ordered(part, {tuple(state[key].shape for key in dict.fromkeys(each.values())): each for each in tied})


def _first_of_tied(keys: Sequence[str], state: State) -> dict[str, str]:
    """Map each key to the first that has the same trained weight, as where two layers share one; mostly to itself."""
    first: dict[tuple[torch.Size, bytes], str] = {}
    tied: dict[str, str] = {}
    for key in keys:
        tensor = state[key]
        if tensor.ndim < 2 or _is_constant(tensor):
            tied[key] = key
        else:
            digest = hashlib.blake2b(tensor.numpy().tobytes()).digest()
            tied[key] = first.setdefault((tensor.shape, digest), key)
    return tied


def _is_constant(tensor: Tensor) -> bool:
    """Return whether all values are equal, as in the kernels that count a mask's pixels, which are not trained."""
    return tensor.numel() > 1 and bool((tensor == tensor.flatten()[0]).all())


def _is_buffer(key: str, state: State) -> bool:
    spectral = key.endswith(_SPECTRAL_V) and f"{key.removesuffix(_SPECTRAL_V)}_u" in state
    return spectral or _BUFFER.fullmatch(key) is not None


def _are_sorted(keys: Sequence[str]) -> bool:
    """Return whether the keys are sorted by name, as safetensors does, so that they do not show the net's order."""
    return len(keys) > 1 and all(one < other for one, other in pairwise(keys))


def _are_one_net(parts: Sequence[StateDict]) -> bool:
    """Return whether there are parts, and all share tensors with the first, as those that are cut out of another do."""
    if not parts:
        return False
    first = {id(tensor) for tensor in parts[0].state.values()}
    return all(any(id(tensor) in first for tensor in part.state.values()) for part in parts[1:])
