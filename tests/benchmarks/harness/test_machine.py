"""A benchmark's record names its machine, and the processes that ran beside it."""

from __future__ import annotations

from pathlib import Path

from benchmarks.harness.machine import load_average, machine_facts


def test_processors_of_the_same_name_are_distinguished_by_their_instructions(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("model name\t: EPYC\nflags\t\t: fpu avx2 avx512_bf16\n")
    facts = machine_facts(cpuinfo)
    assert (facts["processor"], facts["features"]) == ("EPYC", ["avx2", "avx512_bf16"])


def test_a_system_without_that_file_has_no_instructions_to_name(tmp_path: Path) -> None:
    assert machine_facts(tmp_path / "absent")["features"] == []


def test_the_load_is_the_average_of_the_last_minute(tmp_path: Path) -> None:
    loadavg = tmp_path / "loadavg"
    loadavg.write_text("4.18 2.49 2.07 1/100 4242\n")
    assert load_average(loadavg) == 4.18
