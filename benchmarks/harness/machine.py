"""The machine that a benchmark ran on: its processor, and how much else ran beside it."""

from __future__ import annotations

from pathlib import Path

from engines.race.finding import processor_facts

_FEATURES = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
"""They tell apart the machines of docs/benchmarks.md, whose processors may have one name."""


def machine_facts(cpuinfo: Path = Path("/proc/cpuinfo")) -> dict[str, object]:
    """Return the processor's name, its cores, and which of the instruction sets that matter here it has."""
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    return {**processor_facts(cpuinfo), "features": [name for name in _FEATURES if name in flags]}


def load_average(loadavg: Path = Path("/proc/loadavg")) -> float:
    """Return how many threads ran or wanted to run in the last minute, on average."""
    return float(loadavg.read_text().split()[0])
