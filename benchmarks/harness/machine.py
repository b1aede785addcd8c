"""The machine that a benchmark ran on: its processor, and its load."""

from __future__ import annotations

from pathlib import Path

from engines.race.finding import processor_facts

_FEATURES = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
"""Instruction sets that distinguish the machines of docs/benchmarks.md, whose processors may have the same name."""


def machine_facts(cpuinfo: Path = Path("/proc/cpuinfo")) -> dict[str, object]:
    """Return the processor's name, its number of cores, and its instruction sets among `_FEATURES`."""
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    return {**processor_facts(cpuinfo), "features": [name for name in _FEATURES if name in flags]}


def load_average(loadavg: Path = Path("/proc/loadavg")) -> float:
    """Return the mean number of threads that ran or were ready to run in the last minute."""
    return float(loadavg.read_text().split()[0])
