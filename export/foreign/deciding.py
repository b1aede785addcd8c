"""Decides how a graph is wired: declared properties are taken as given, the others are found by trials.

A property that the user left out is settled only if exactly one of its values passes every check on a photograph;
otherwise the user is asked to declare it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from export.errors import GraphRefused
from export.foreign.declaration import Declaration, ImageRange, MaskMeans, MaskRange
from export.foreign.observing import Net, Observed, Probe, find_faults, keeps_known
from export.foreign.ports import Ports
from export.foreign.wiring import Wiring

_IMAGE_RANGES: tuple[ImageRange, ...] = ("0..1", "-1..1", "0..255")
_MASK_MEANINGS: tuple[MaskMeans, ...] = ("hole", "known")
_MEASURED = ("image", "mask", "image-range", "mask-range", "mask-means", "hole-value", "output-range")
_TRIED_FLAGS = ("image-range", "mask-range", "mask-means", "hole-value", "output-range", "composite")
_MAX_SHOWN = 4


class Decision(NamedTuple):
    """A wiring that passed, whether the graph composites, and sentences about what was measured."""

    wiring: Wiring
    composites: bool
    found: tuple[str, ...]


class _Trial(NamedTuple):
    wiring: Wiring
    observed: Observed
    faults: list[str]


def decide(net: Net, ports: Ports, declared: Declaration, result_type: str, probe: Probe) -> Decision:
    """Find the wiring that does what an inpainting net does.

    Args:
        net: the graph, unchanged.
        ports: its inputs and output.
        declared: the user's declaration.
        result_type: the type of the result's numbers.
        probe: a photograph with a hole.

    Raises:
        GraphRefused: no wiring passes; the message says what was observed and which flags would help. Or several pass;
            the message lists them.
    """
    trials = _trials(net, _wirings(ports, declared, result_type), declared, probe)
    passing = [trial for trial in trials if not trial.faults]
    if not passing and declared.hole_value is None:
        emptied = declared.model_copy(update={"hole_value": 0.0})
        passing = [t for t in _trials(net, _wirings(ports, emptied, result_type), declared, probe) if not t.faults]
    if not passing:
        raise GraphRefused(_failure_message(net, ports, declared, result_type, trials))
    if open_flags := _open_flags([trial.wiring.flags() for trial in passing]):
        raise GraphRefused(_ambiguity_message(passing, open_flags))
    chosen = passing[0]
    composites = keeps_known(chosen.wiring, chosen.observed)
    return Decision(chosen.wiring, composites, tuple(_measured(chosen.wiring, ports, declared)))


def _wirings(ports: Ports, declared: Declaration, result_type: str) -> Iterator[Wiring]:
    """Yield every wiring that agrees with the declaration and with the types, usual ones first."""
    for image, mask in ports.candidates:
        joint = image.name == mask.name
        whole = "int8" in ports.port(image).dtype
        for image_range, mask_range, means, output_range in product(
            _choices(declared.image_range, _IMAGE_RANGES, whole=whole),
            _mask_ranges(declared.mask_range, ports.port(mask).dtype, joint=joint),
            (declared.mask_means,) if declared.mask_means else _MASK_MEANINGS,
            _choices(declared.output_range, _IMAGE_RANGES, whole="int8" in result_type),
        ):
            yield Wiring(
                ports=ports,
                image=image,
                mask=mask,
                image_range=image_range,
                mask_range=mask_range,
                mask_means=means,
                hole_value=0.0 if joint and declared.hole_value is None else declared.hole_value,
                output_range=output_range,
                bgr=declared.channels == "bgr",
            )


def _choices(declared: ImageRange | None, usual: Sequence[ImageRange], *, whole: bool) -> Sequence[ImageRange]:
    if declared is not None:
        return (declared,)
    return ("0..255",) if whole else usual


def _mask_ranges(declared: MaskRange | None, dtype: str, *, joint: bool) -> Sequence[MaskRange]:
    if declared is not None:
        return (declared,)
    if dtype in {"bool", "uint8"}:
        return ("0..1",) if dtype == "bool" else ("0..255",)
    return ("0..1", "-0.5..0.5") if joint else ("0..1", "0..255")


def _trials(net: Net, wirings: Iterator[Wiring], declared: Declaration, probe: Probe) -> list[_Trial]:
    seen: dict[tuple[str, ...], Observed | str] = {}
    trials = []
    composites = None if declared.composite is None else declared.composite == "inside"
    for wiring in wirings:
        flags = wiring.flags()
        key = tuple(value for name, value in flags.items() if name != "output-range")
        if key not in seen:
            seen[key] = Observed(net, wiring, probe)
        observed = seen[key]
        if isinstance(observed, Observed):
            trials.append(_Trial(wiring, observed, find_faults(wiring, observed, composites=composites)))
    return trials


def _open_flags(passing: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    """Return the flags in which passing wirings differ, with the values of each."""
    values = {name: list(dict.fromkeys(flags.get(name, "") for flags in passing)) for name in passing[0]}
    return {name: found for name, found in values.items() if len(found) > 1}


def _ambiguity_message(passing: Sequence[_Trial], open_flags: Mapping[str, Sequence[str]]) -> str:
    shown = [
        " ".join(f"--{name} {trial.wiring.flags()[name]}" for name in open_flags) for trial in passing[:_MAX_SHOWN]
    ]
    return (
        f"several interpretations of the graph fill the hole, and only its author knows which is correct: "
        f"{'; or '.join(shown)}{'; or …' if len(passing) > _MAX_SHOWN else ''}. Look it up and give these flags"
    )


def _failure_message(net: Net, ports: Ports, declared: Declaration, result_type: str, trials: Sequence[_Trial]) -> str:
    first = trials[0]
    seen = "; ".join(first.faults)
    freed = declared.model_copy(
        update=dict.fromkeys(("image_range", "mask_range", "mask_means", "output_range", "composite", "hole_value"))
    )
    if freed == declared:
        return (
            f"no interpretation of the graph fills the hole in a photograph. Read as {_as_flags(first.wiring)}: {seen}"
        )
    others = [t for t in _trials(net, _wirings(ports, freed, result_type), freed, first.observed.probe) if not t.faults]
    if not others:
        return f"as declared the graph does not inpaint: {seen}. No other range or polarity corrects it"
    said = declared.model_dump(exclude_none=True)
    if declared.hole_value is not None:
        said["hole_value"] = f"{declared.hole_value:g}"
    mended, trial = min(((_advice(said, trial), trial) for trial in others), key=lambda pair: (len(pair[0]), pair[0]))
    seen = "; ".join(next((tried.faults for tried in trials if tried.wiring == trial.wiring), first.faults))
    mended = mended or "another --hole-value, or none,"
    return f"as declared the graph does not inpaint: {seen}. With {mended} it does, on a photograph with a hole"


def _advice(said: Mapping[str, object], trial: _Trial) -> str:
    """Return the flags that differ between the user's declaration and this trial's wiring, with the wiring's values."""
    flags = trial.wiring.flags()
    if "composite" in said:
        flags["composite"] = "inside" if keeps_known(trial.wiring, trial.observed) else "outside"
    given = {name: said.get(name.replace("-", "_"), value) for name, value in flags.items() if name in _TRIED_FLAGS}
    return " ".join(f"--{name} {flags[name]}" for name, value in given.items() if value != flags[name])


def _as_flags(wiring: Wiring) -> str:
    return " ".join(f"--{name} {value}" for name, value in wiring.flags().items())


def _measured(wiring: Wiring, ports: Ports, declared: Declaration) -> Iterator[str]:
    said = {name for name in _MEASURED if getattr(declared, name.replace("-", "_")) is not None}
    said |= {"image", "mask"} if len(ports.candidates) == 1 else set()
    measured = " ".join(
        f"--{name} {value}" for name, value in wiring.flags().items() if name in _MEASURED and name not in said
    )
    if measured:
        yield f"{measured}: the only interpretation of the graph that fills a hole in a photograph"
