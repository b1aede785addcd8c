"""Times engines side by side.

Rounds are interleaved, so that a busy moment of the host hits all engines, and engines are compared within a round.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import structlog
from pydantic import BaseModel, ConfigDict

from engines.base import BatchShape, Engine, blank_feed
from engines.errors import DeviceLost, EngineError, EngineOutOfMemory, ParityTooLow

MARGIN = 0.05
"""Fraction by which an engine must be faster than the first in the fixed order to be preferred to it."""
_MIN_ROUNDS, _MAX_ROUNDS = 3, 50
_BLOCK_S = 0.02
"""Batches that are shorter are repeated until a measurement takes this long."""

_log = structlog.get_logger(__name__)


class Racer(NamedTuple):
    """An engine that may take part: `open` raises EngineError or ParityTooLow where it cannot."""

    name: str
    open: Callable[[], Engine]


class RaceResult(BaseModel):
    """The engines of a race, the fastest first, and the times in words."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    order: tuple[str, ...]
    why: str


class Raced(NamedTuple):
    """The outcome of a race, or of an earlier one.

    result: the engines that finished.
    engine: the only engine that finished, still open; None if several did, or for the result of an earlier race.
    left_out: why the other engines did not finish, by name.
    """

    result: RaceResult
    engine: Engine | None = None
    left_out: Mapping[str, str] = MappingProxyType({})


NO_RACE = Raced(RaceResult(order=(), why=""))


def run_race(
    racers: Sequence[Racer],
    shapes: Sequence[BatchShape],
    seconds: float,
    notify: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Raced | None:
    """Time the engines side by side; returns None if none runs. All are closed, unless only one is left: it stays open.

    Args:
        racers: the engines in their fixed order.
        shapes: the shapes to time, each in turn; later ones are left out when the time is up.
        seconds: the time after which no round begins, except that a shape gets at least three rounds once it has
            begun. Only rounds count: opening an engine, and its first two blocks of a shape, may compile.
        notify: called with each step, as text.
        clock: monotonic seconds.

    Raises:
        EngineOutOfMemory: the device has too little memory for two engines at once, or at present even for one.
        DeviceLost: the process must end.
    """
    engines: dict[str, Engine] = {}
    left_out: dict[str, str] = {}
    try:
        _open_all(racers, engines, left_out, notify)
        laps: dict[BatchShape, list[_Round]] = {}
        left_s = seconds
        for shape in shapes:
            if len(engines) < 2 or (laps and left_s <= 0):
                break
            notify(f"racing {', '.join(engines)} at {_words(shape)}")
            field = _Field(engines, left_out, clock)
            laps[shape] = field.time_rounds(shape, left_s / (len(shapes) - len(laps)))
            left_s -= sum(taken.block_s for one in laps[shape] for taken in one.values())
        if not engines:
            return None
        result = _judge(laps, list(engines))
        return Raced(result, engines.popitem()[1] if len(engines) == 1 else None, left_out)
    finally:
        for engine in engines.values():
            engine.close()


class _Lap(NamedTuple):
    """One measurement of one engine: seconds for a block of batches, and for one of them."""

    block_s: float
    batch_s: float


_Round = dict[str, _Lap]


def _open_all(
    racers: Sequence[Racer], engines: dict[str, Engine], left_out: dict[str, str], notify: Callable[[str], None]
) -> None:
    for racer in racers:
        notify(f"opening {racer.name} for a race")
        try:
            engines[racer.name] = racer.open()
        except DeviceLost as lost:
            lost.engine = racer.name
            raise
        except EngineOutOfMemory:
            raise
        except Exception as error:  # a failure of one engine must not end the race of the others
            left_out[racer.name] = _reason(error)
            _log.info("not in the race", engine=racer.name, reason=left_out[racer.name])


class _Field(NamedTuple):
    """The open engines of a race. An engine that fails is closed and removed; `left_out` has the reason."""

    engines: dict[str, Engine]
    left_out: dict[str, str]
    clock: Callable[[], float]

    def time_rounds(self, shape: BatchShape, seconds: float) -> list[_Round]:
        """Time the engines in turn, until the time is up."""
        repeats = {}
        for name in list(self.engines):
            lap = self._time_block(name, shape, 1) and self._time_block(name, shape, 1)
            if lap is not None:  # that of the second batch: the first one may have compiled
                repeats[name] = max(1, math.ceil(_BLOCK_S / max(lap.batch_s, 1e-6)))
        rounds: list[_Round] = []
        spent = 0.0
        while len(self.engines) > 1 and len(rounds) < _MAX_ROUNDS and (spent < seconds or len(rounds) < _MIN_ROUNDS):
            names = list(self.engines) if len(rounds) % 2 else list(reversed(self.engines))
            laps = {name: self._time_block(name, shape, repeats[name]) for name in names}
            rounds.append({name: lap for name, lap in laps.items() if lap is not None})
            spent += sum(lap.block_s for lap in rounds[-1].values())
        return rounds

    def _time_block(self, name: str, shape: BatchShape, repeats: int) -> _Lap | None:
        engine = self.engines[name]
        try:
            feed = blank_feed(engine.manifest, shape)
            began = self.clock()
            for _ in range(repeats):
                engine.infer(feed)
            taken = self.clock() - began
        except DeviceLost as lost:
            lost.engine = name
            raise
        except EngineOutOfMemory:
            raise
        except Exception as error:  # as above
            self.left_out[name] = _reason(error)
            _log.warning("out of the race", engine=name, reason=self.left_out[name])
            self.engines.pop(name).close()
            return None
        return _Lap(taken, taken / repeats)


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, EngineError | ParityTooLow) else f"{type(error).__name__}: {error}"


def _judge(laps: Mapping[BatchShape, list[_Round]], names: Sequence[str]) -> RaceResult:
    """Order the engines by their times relative to the first; without a clear winner the fixed order stays."""
    if len(names) == 1:
        return RaceResult(order=(names[0],), why=f"race: only {names[0]} runs here")
    first = names[0]
    ratios = dict.fromkeys(names, 1.0)
    for name in names:
        logs = [
            math.log(statistics.median(one[name].batch_s / one[first].batch_s for one in rounds))
            for rounds in laps.values()
        ]
        ratios[name] = math.exp(statistics.fmean(logs))
    fastest = min(names, key=lambda name: ratios[name])
    is_clear = ratios[fastest] < 1 - MARGIN
    order = sorted(names, key=lambda name: ratios[name]) if is_clear else list(names)
    times = "; ".join(
        ", ".join(f"{name} {statistics.median(one[name].batch_s for one in rounds) * 1e3:.4g}" for name in names)
        + f" ms at {_words(shape)}"
        for shape, rounds in laps.items()
    )
    what = f"{order[0]} is faster" if is_clear else f"{first} stays, as none is faster by {MARGIN:.0%}"
    return RaceResult(order=tuple(order), why=f"race: {what} ({times})")


def _words(shape: BatchShape) -> str:
    return f"{shape.batch} × {shape.width}×{shape.height}"
