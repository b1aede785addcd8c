"""Recognises the generator family and its options from a checkpoint's keys and shapes; the user's options win."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from engines.validation import fault_message
from export.checkpoint import layout_faults, refuse_unusable
from export.errors import LayoutMismatch, OptionInvalid
from export.generators import FAMILIES
from export.generators.family import Family, GeneratorOptions, State
from export.states.choosing import by_preference, notes_on_choice, rivals_of, several_message
from export.states.finding import StateDict
from export.states.folding import as_hooks, folded, folding_note, unfolded_message
from export.states.joining import Joined, join_parts
from export.states.nearest import nearest_message
from export.states.prefixes import by_first_name, without_common_prefixes


@dataclass(frozen=True)
class RecognisedNet:
    """The net of a checkpoint: its family, options and weights."""

    family: Family[Any]
    options: GeneratorOptions
    state: State
    notes: tuple[str, ...]
    """The choices among several possibilities, for the report."""
    origins: tuple[StateDict, ...] = ()
    """The parts that the weights were taken from."""


def recognise(parts: Sequence[StateDict], generator: str | None, overrides: Mapping[str, str]) -> RecognisedNet:
    """Find the family, the options and the state dict to load.

    Args:
        parts: every state dict of the checkpoint's files.
        generator: the family's name, or None to recognise it.
        overrides: options as typed on the command line; they win over what was recognised.

    Raises:
        OptionInvalid: the generator, an option or its value is unknown; the message names the known ones. Or the parts
            are several nets, such as both of a CycleGAN; the message says how to choose.
        LayoutMismatch: no family recognises any of the parts, or only families other than `generator` do.
        CheckpointRefused: the chosen weights are not all real and finite.
    """
    found = _found(parts, generator, overrides)
    refuse_unusable(StateDict(found.origins[0].path if len(found.origins) == 1 else "", found.state))
    return found


def _found(parts: Sequence[StateDict], generator: str | None, overrides: Mapping[str, str]) -> RecognisedNet:
    families = FAMILIES.values() if generator is None else [family_named(generator)]
    ranked = by_preference(parts)
    plain = [folded(part.state) for part in ranked] if len(ranked) > 1 else []
    for family in families:  # first, so that one of several nets is not mistaken for the whole model
        joined = family.join(plain) if plain else None
        if joined is not None and (found := _recognised_options(family, joined)) is not None:
            options = _override_options(family, found.model_dump(), overrides)
            return RecognisedNet(family, options, joined, (Joined("", joined, tuple(ranked)).note(),), tuple(ranked))
    for nets in (ranked, without_common_prefixes(ranked)):
        if (chosen := _chosen(families, nets, overrides)) is not None:
            _refuse_rivals(chosen, families, nets, overrides)
            return chosen
    if generator is None or not overrides:
        _refuse_passed_limits(families, ranked)
    if generator is None:
        raise LayoutMismatch(_unrecognised_message(parts))
    return _unrecognised(family_named(generator), ranked, overrides)


def _chosen(
    families: Collection[Family[Any]], ranked: Sequence[StateDict], overrides: Mapping[str, str]
) -> RecognisedNet | None:
    """Return the first net that a family recognises; if it cannot be loaded, the one that it is a part of.

    Raises:
        OptionInvalid, LayoutMismatch: a family refuses the net, and it is no part of another.
    """
    first: RecognisedNet | OptionInvalid | LayoutMismatch | None = None
    begun: tuple[StateDict, ...] = ()
    for candidate in (*(Joined(part.path, part.state, (part,)) for part in ranked), *join_parts(ranked)):
        if not all(any(part is own for own in candidate.origins) for part in begun):
            continue
        for outcome in _outcomes(families, candidate, ranked, overrides):
            if isinstance(outcome, RecognisedNet) and _loads(outcome):
                return outcome
            first, begun = first or outcome, begun or candidate.origins
    if isinstance(first, Exception):
        raise first
    return first  # the strict loader will name what it lacks


def _refuse_rivals(
    chosen: RecognisedNet, families: Collection[Family[Any]], ranked: Sequence[StateDict], overrides: Mapping[str, str]
) -> None:
    """Refuse to choose between nets that could all be exported, such as both of a CycleGAN.

    Raises:
        OptionInvalid: there are others than the chosen one; the message has the flag for each.
    """
    own = chosen.origins[0]
    others = rivals_of(own, ranked) if len(chosen.origins) == 1 and own.path else []
    if not others or not _loads(chosen):  # in this order, as most files have no other and a net takes long to build
        return
    rivals = [
        part
        for part in others
        for outcome in _outcomes(families, Joined(part.path, part.state, (part,)), ranked, overrides)
        if isinstance(outcome, RecognisedNet) and _loads(outcome)
    ]
    if rivals:
        raise OptionInvalid(several_message([own, *rivals]))


def _outcomes(
    families: Collection[Family[Any]], candidate: Joined, ranked: Sequence[StateDict], overrides: Mapping[str, str]
) -> Iterator[RecognisedNet | OptionInvalid | LayoutMismatch]:
    """Yield the nets that families recognise in a candidate, and why families refuse it."""
    for state, family in product(_forms(candidate.state), families):
        try:
            if (found := _recognised_options(family, state)) is None:
                continue
            options = _override_options(family, found.model_dump(), overrides)
        except (LayoutMismatch, OptionInvalid) as error:
            yield error
            continue
        several = len(candidate.origins) > 1
        choice = [candidate.note()] if several else notes_on_choice(candidate.origins[0], ranked)
        notes = (*choice, *folding_note(candidate.state, state))
        yield RecognisedNet(family, options, state, notes, candidate.origins)


def _loads(found: RecognisedNet) -> bool:
    """Return whether the net can be loaded: a half of a net, too, is recognised."""
    try:
        state = found.family.translate(found.state, found.options).state
    except LayoutMismatch:
        return False
    with torch.device("meta"):
        net = found.family.build(found.options)
    return not layout_faults(net, state)


def _forms(state: State) -> Iterator[State]:
    """Yield the state with plain weights, and with the hooks that one family's net has; once if they are the same."""
    hooked = as_hooks(state)
    plain = folded(hooked)
    yield from (plain,) if plain is hooked else (plain, hooked)


def _unrecognised(family: Family[Any], ranked: Sequence[StateDict], overrides: Mapping[str, str]) -> RecognisedNet:
    """Return the part most similar to the family that the user names; the strict loader will name the differences.

    Raises:
        LayoutMismatch: without overrides, a part is a net of another family.
        OptionInvalid: an option or its value is unknown.
    """
    if not overrides and (other := _family_of(ranked)) is not None:
        raise LayoutMismatch(f"this is not a net of {family.name}: its keys and shapes are those of {other}")
    options = _override_options(family, {}, overrides)
    closest = _most_alike(ranked, family, options)
    notes = tuple(notes_on_choice(closest, ranked))
    return RecognisedNet(family, options, folded(closest.state), notes, (closest,))


def notes_on_files(found: RecognisedNet, files: Mapping[Path, Sequence[StateDict]]) -> tuple[str, ...]:
    """Return a note on each file that is no part of the model, such as a discriminator's.

    Args:
        found: the net recognised in the files.
        files: the state dicts of each file.

    Raises:
        LayoutMismatch: such a file holds another model, as when `*.pth` was given; one command makes one model.
    """
    used = [part.state for origin in found.origins for part in (origin, *origin.made_of)]
    whole = [path for path, parts in files.items() if any(part.state is state for part in parts for state in used)]
    others = [path for path in files if whole and path not in whole]
    for path in others:
        if (family := _family_of(files[path])) is not None:
            raise LayoutMismatch(
                f"{path} is not part of the {found.family.name} in {whole[0]}, but a separate {family}; export each "
                "with its own command"
            )
    return (f"left out: {', '.join(map(str, others))}",) if others else ()


def _family_of(parts: Sequence[StateDict]) -> str | None:
    """Return the name of the family that recognises one of the parts."""
    return next(
        (
            name
            for part in parts
            for name, family in FAMILIES.items()
            if _recognised_options(family, folded(part.state))
        ),
        None,
    )


def _recognised_options(family: Family[Any], state: State) -> GeneratorOptions | None:
    """Return the options that the family recognises; None if keys, shapes or option values exclude the family."""
    try:
        options: GeneratorOptions | None = family.recognise(state)
    except (ValidationError, IndexError, KeyError):
        return None
    return options


def _refuse_passed_limits(families: Iterable[Family[Any]], parts: Sequence[StateDict]) -> None:
    """Refuse a part that has a family's keys, but an option beyond the family's limits.

    Raises:
        LayoutMismatch: there is such a part; the message names family, option and limit.
    """
    for part, family in product(parts, families):
        if (passed := _passed_limits(family, part.state)) is not None:
            raise LayoutMismatch(f"the keys are those of {family.name}, but {passed}; such a net cannot be exported")


def _passed_limits(family: Family[Any], state: State) -> str | None:
    try:
        family.recognise(state)
    except ValidationError as error:
        return _invalid_options(error)
    except (IndexError, KeyError):
        return None
    return None


def _most_alike(parts: Sequence[StateDict], family: Family[Any], options: GeneratorOptions) -> StateDict:
    """Return the part that shares most keys with the family's net; the first of several."""
    with torch.device("meta"):
        wanted = family.build(options).state_dict().keys()
    return max(parts, key=lambda part: len(wanted & folded(part.state).keys()))


def family_named(generator: str) -> Family[Any]:
    """Return the family of that name.

    Raises:
        OptionInvalid: there is none; the message names those that exist.
    """
    if generator not in FAMILIES:
        raise OptionInvalid(f"unknown generator {generator!r}; known generators are {', '.join(FAMILIES)}")
    return FAMILIES[generator]


def _override_options(family: Family[Any], found: dict[str, Any], overrides: Mapping[str, str]) -> GeneratorOptions:
    known = family.options.model_fields
    names = {name: name.replace("-", "_") for name in overrides}
    unknown = sorted(name for name, field in names.items() if field not in known)
    if unknown:
        raise OptionInvalid(
            f"unknown option {', '.join(unknown)} of {family.name}; known options are {', '.join(known)}"
        )
    try:
        options: GeneratorOptions = family.options.model_validate(
            {**found, **{names[name]: value for name, value in overrides.items()}}
        )
    except ValidationError as error:
        raise OptionInvalid(f"{family.name}: {_invalid_options(error)}") from error
    return options


def _invalid_options(error: ValidationError) -> str:
    """Return a message for each wrong option; one about options that contradict each other begins without a name."""
    faults = [(fault["loc"], fault["input"], fault_message(fault, quoted=False)) for fault in error.errors()]
    return "; ".join(f"{loc[0]}={value}: {message}" if loc else message for loc, value, message in faults)


def _unrecognised_message(parts: Sequence[StateDict]) -> str:
    keys = list(max(parts, key=lambda part: len(part.state)).state)  # a tie: the file's own, not a part cut out
    message = f"no known generator has keys such as {', '.join(keys[:4])}"
    if inside := [(net, name) for part in parts for net in by_first_name(part) if (name := _family_of([net]))]:
        found = [
            f"those under {net.path.rpartition('/')[2]}. are those of {name}: add --weights {shlex.quote(net.path)}"
            for net, name in inside
        ]
        return f"{message}; {'; '.join(found)}"
    unfolded = unfolded_message(dict.fromkeys(keys))
    if nearest := nearest_message([*without_common_prefixes(parts), *parts]):
        return f"{message}; {nearest}; if the net is in several files, give all of them{unfolded}"
    return (
        f"{message}; known generators are {', '.join(FAMILIES)}: name one with --generator to see which keys differ, "
        f"and give all files of a net in several{unfolded}"
    )
