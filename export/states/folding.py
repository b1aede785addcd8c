"""Folds what torch trains in place of a weight into the weight: spectral norm, weight norm, pruning.

Each has two spellings in a file, that of a hook (`weight_orig`, `weight_g`) and that of torch's parametrizations
(`parametrizations.weight.original`). `as_hooks` brings the second to the first; `folded` computes the weights exactly
as torch does in eval mode.

| trained in its place      | keys                                             | weight                       |
|---------------------------|--------------------------------------------------|------------------------------|
| spectral norm             | `weight_orig`, `weight_u`, `weight_v`            | orig / (u·W·v)               |
| the same, torch before 1  | `weight_orig`, `weight_u`, `weight`              | the stored weight            |
| the same, a module around | `module.weight_bar`, `_u`, `_v`                  | after one power iteration    |
| weight norm               | `weight_g`, `weight_v`                           | g·v / ‖v‖ over g's axes of 1 |
| pruning                   | `weight_orig`, `weight_mask`                     | orig·mask                    |
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor

from export.generators.family import State

_PARAMETRIZED = re.compile(r"(?P<weight>(?:.*\.)?)parametrizations\.(?P<name>\w+)\.(?P<rest>[\w.]+)")
_HOOKS: Mapping[frozenset[str], Mapping[str, str]] = MappingProxyType(
    {
        frozenset({"original", "0._u", "0._v"}): {"original": "orig", "0._u": "u", "0._v": "v"},
        frozenset({"original0", "original1"}): {"original0": "g", "original1": "v"},
    }
)
"""Names after `parametrizations.weight.` to those after `weight_`, for each set of them that is known."""
_HOOKED = re.compile(r"(?P<weight>.+)_(?P<rest>orig|bar|g|u|v|mask)")
_ALIGNED, _CLEARLY = 0.9, 0.25
"""Cosine of u and W·v that trained vectors exceed on their own axis, and how much nearer to 1 it is than on another."""


def as_hooks(state: State) -> State:
    """Return the state with torch's parametrizations named like its hooks; the same object if it has none."""
    groups: dict[str, set[str]] = defaultdict(set)
    for key in state:
        if found := _PARAMETRIZED.fullmatch(key):
            groups[found["weight"] + found["name"]].add(found["rest"])
    names = {weight: _HOOKS.get(frozenset(rests)) for weight, rests in groups.items()}
    if not any(names.values()):
        return state

    def hook(key: str) -> str:
        found = _PARAMETRIZED.fullmatch(key)
        weight = found["weight"] + found["name"] if found else ""
        return f"{weight}_{rests[found['rest']]}" if found and (rests := names.get(weight)) else key

    return {hook(key): tensor for key, tensor in state.items()}


def folded(state: State) -> State:
    """Return the state with plain weights in place of those above; the same object if there are none.

    A spectral norm whose axis the file does not show stays as it is, and `unfolded_message` names it.
    """
    hooked = as_hooks(state)
    groups: dict[str, dict[str, Tensor]] = defaultdict(dict)
    for key, tensor in hooked.items():
        if found := _HOOKED.fullmatch(key):
            groups[found["weight"]][found["rest"]] = tensor
    found_weights = {weight: _weight(parts, hooked.get(weight)) for weight, parts in groups.items()}
    plain = {weight: tensor for weight, tensor in found_weights.items() if tensor is not None}
    if not plain:
        return hooked
    done: State = {}
    for key, tensor in hooked.items():
        found = _HOOKED.fullmatch(key)
        weight = found["weight"] if found else key
        done.setdefault(weight if weight in plain else key, plain.get(weight, tensor))
    return _without_wrappers(done, {weight for weight in plain if "bar" in groups[weight]})


def folding_note(before: State, after: State) -> tuple[str, ...]:
    """Return a note on the weights that were folded; none if nothing was."""
    known = {id(tensor) for tensor in before.values()}
    count = sum(id(tensor) not in known for tensor in after.values())
    return (f"{count} weights were computed from their spectral norm, weight norm or mask",) if count else ()


def unfolded_message(keys: Mapping[str, object]) -> str:
    """Return what to do about keys that stand for a weight and cannot be folded; empty if there are none."""
    strange = [key for key in keys if _PARAMETRIZED.fullmatch(key) or key.endswith(("weight_orig", "weight_bar"))]
    if not strange:
        return ""
    return (
        f"; {strange[0]} stands for a weight that cannot be computed from the file: call "
        "torch.nn.utils.parametrize.remove_parametrizations, remove_spectral_norm or remove_weight_norm on the net's "
        "layers, and save its state_dict again"
    )


def _weight(parts: Mapping[str, Tensor], stored: Tensor | None) -> Tensor | None:
    """Return the weight that the parts stand for, beside one that may be stored.

    None if their shapes are not those of what their names say; other nets may use such names.
    """
    fold = _FOLDS.get(frozenset(parts))
    if fold is None or not all(tensor.is_floating_point() for tensor in parts.values()):
        return None
    return fold(parts, stored)


def _axis(weight: Tensor, u: Tensor, v: Tensor | None) -> int | None:
    """Return the axis along which u was taken: 0, or 1 as in torch's transposed convolutions; None if unclear."""
    if weight.ndim < 2 or u.ndim != 1 or (v is not None and (v.ndim != 1 or len(u) * len(v) != weight.numel())):
        return None
    axes = [axis for axis in (0, 1) if weight.shape[axis] == len(u)]
    if len(axes) < 2 or v is None or weight.is_meta:
        return axes[0] if axes else None
    cosines = {axis: float(F.cosine_similarity(u, torch.mv(_matrix(weight, axis), v), dim=0)) for axis in axes}
    best, other = sorted(axes, key=lambda axis: cosines[axis], reverse=True)
    return best if cosines[best] > _ALIGNED and 1 - cosines[best] < _CLEARLY * (1 - cosines[other]) else None


def _matrix(weight: Tensor, axis: int) -> Tensor:
    return weight.movedim(axis, 0).flatten(1)


def _fold_spectral(parts: Mapping[str, Tensor], _stored: Tensor | None) -> Tensor | None:
    weight, u, v = parts["orig"], parts["u"], parts["v"]
    axis = _axis(weight, u, v)
    return None if axis is None else weight / torch.dot(u, torch.mv(_matrix(weight, axis), v))


def _fold_stored(parts: Mapping[str, Tensor], stored: Tensor | None) -> Tensor | None:
    """Take the weight that torch before 1.0 stored; without it, one power iteration is made."""
    weight = parts["orig"]
    if stored is not None:
        return stored if weight.ndim and stored.shape == weight.shape and stored.is_floating_point() else None
    return _iterated(weight, parts["u"], None)


def _fold_bar(parts: Mapping[str, Tensor], _stored: Tensor | None) -> Tensor | None:
    return _iterated(parts["bar"], parts["u"], parts.get("v"))


def _iterated(weight: Tensor, u: Tensor, v: Tensor | None) -> Tensor | None:
    """Divide by the largest singular value as a first call does: one power iteration from the stored u, on axis 0."""
    if _axis(weight, u, v) != 0:
        return None
    matrix = weight.flatten(1)
    v = F.normalize(matrix.t() @ u, dim=0)
    return weight / (F.normalize(matrix @ v, dim=0) @ matrix @ v)


def _fold_weight_norm(parts: Mapping[str, Tensor], stored: Tensor | None) -> Tensor | None:
    g, v = parts["g"], parts["v"]
    if stored is not None or not (g.ndim == 0 or _are_one_or_equal(g, v)):
        return None
    if g.shape == v.shape:  # each value is an axis of its own; torch reduces over all axes if it is given none
        return v * (g / v.abs())
    axes = [axis for axis in range(v.ndim) if g.ndim == 0 or g.shape[axis] == 1]
    scaled: Tensor = v * (g / torch.linalg.vector_norm(v, dim=axes, keepdim=g.ndim > 0))
    return scaled


def _are_one_or_equal(g: Tensor, v: Tensor) -> bool:
    return g.ndim == v.ndim and all(one in (1, size) for one, size in zip(g.shape, v.shape, strict=True))


def _fold_mask(parts: Mapping[str, Tensor], _stored: Tensor | None) -> Tensor | None:
    return parts["orig"] * parts["mask"] if parts["mask"].shape == parts["orig"].shape else None


def _without_wrappers(state: State, wrapped: set[str]) -> State:
    """Remove the module around a layer whose weight it normalised, here `module` in `conv.module.weight`."""
    layers = {weight.rpartition(".")[0] for weight in wrapped}
    layers = {layer for layer in layers if layer.rpartition(".")[2] == "module"}
    renamed = {}
    for key, tensor in state.items():
        layer, _, name = key.rpartition(".")
        renamed[f"{layer.removesuffix('module')}{name}" if layer in layers else key] = tensor
    return renamed


_Fold: TypeAlias = Callable[[Mapping[str, Tensor], Tensor | None], Tensor | None]
_FOLDS: Mapping[frozenset[str], _Fold] = MappingProxyType(
    {
        frozenset({"orig", "u", "v"}): _fold_spectral,
        frozenset({"orig", "u"}): _fold_stored,
        frozenset({"bar", "u", "v"}): _fold_bar,
        frozenset({"bar", "u"}): _fold_bar,
        frozenset({"g", "v"}): _fold_weight_norm,
        frozenset({"orig", "mask"}): _fold_mask,
    }
)
