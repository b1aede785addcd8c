"""Finds the net of a known family that is most similar to a net that no family recognises."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import product
from typing import Any, Literal, TypeAlias, get_args, get_origin

import torch
from torch import nn

from export.generators import FAMILIES
from export.generators.family import Family, GeneratorOptions, State
from export.states.finding import StateDict

_SIMILAR, _VERY_SIMILAR = 0.3, 0.5
"""Smallest share of the keys of two nets that both have, where unrelated nets share next to none; and the share from
which no other family can be nearer, so that their nets, which take seconds, are not built."""
_MAX_PARTS, _KEYS_SHOWN = 4, 4
_MIN_KEYS = 6
"""Fewest keys of a part that is compared, because building all families' nets takes seconds; DCGAN's generator without
norms has six."""
_Build: TypeAlias = Callable[[Family[Any], GeneratorOptions], nn.Module]


def nearest_message(parts: Sequence[StateDict]) -> str:
    """Return how the most similar known net differs from the part that is similar to it; empty if no net is similar."""
    states = [part.state for part in parts[:_MAX_PARTS] if len(part.state) >= _MIN_KEYS]
    build = cache(_built)  # several parts are compared with the same nets
    best: tuple[float, State, Family[Any], GeneratorOptions, nn.Module] | None = None
    for family, state in product(FAMILIES.values(), states):
        options, net = _nearest_of(family, state, build)
        similarity = _similarity(state, net)
        if similarity >= _SIMILAR and (best is None or similarity > best[0]):
            best = similarity, state, family, options, net
        if best and best[0] >= _VERY_SIMILAR:
            break
    if best is None:
        return ""
    _, state, family, options, net = best
    usual = family.options()
    chosen = [f"{name}={value}" for name, value in options if value != getattr(usual, name)]
    name = f"{family.name} with {', '.join(chosen)}" if chosen else family.name
    return f"the nearest is {name}: {'; '.join(_differences(state, net))}"


def _nearest_of(family: Family[Any], state: State, build: _Build) -> tuple[GeneratorOptions, nn.Module]:
    """Return the family's net that shares most keys with the state: each option in turn takes its best value."""
    options = family.options()
    net = build(family, options)
    for name, values in _choices(family):
        for value in values:
            other = options.model_copy(update={name: value})
            built = build(family, other)
            if _similarity(state, built) > _similarity(state, net):
                options, net = other, built
    return options, net


def _choices(family: Family[Any]) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Yield the options that have few values, with these."""
    for name, field in family.options.model_fields.items():
        if get_origin(field.annotation) is Literal:
            yield name, get_args(field.annotation)
        elif field.annotation is bool:
            yield name, (False, True)


def _built(family: Family[Any], options: GeneratorOptions) -> nn.Module:
    with torch.device("meta"):
        net: nn.Module = family.build(options)
    return net


def _similarity(state: State, net: nn.Module) -> float:
    keys = net.state_dict().keys()
    return len(keys & state.keys()) / len(keys | state.keys())


def _differences(state: State, net: nn.Module) -> Iterator[str]:
    wanted = net.state_dict()
    for what, keys, others in (("missing", wanted, state), ("unexpected", state, wanted)):
        if names := [key for key in keys if key not in others]:
            more = f" and {len(names) - _KEYS_SHOWN} more" if len(names) > _KEYS_SHOWN else ""
            yield f"{what}: {', '.join(names[:_KEYS_SHOWN])}{more}"
    layers = [f"{name}.weight" for name, one in net.named_modules() if isinstance(one, nn.ConvTranspose2d)]
    if layers and not any(key in state and state[key].ndim == wanted[key].ndim for key in layers):
        yield (
            "its decoder has no transposed convolutions, so it may use nn.Upsample; a file does not show how that "
            "interpolates, and such a net cannot be exported from its weights"
        )
