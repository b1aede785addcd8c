"""Free ports: no other process may get one before its server starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.serving.ports import free_port

ROOT = Path(__file__).parents[3]
CHOSEN_BY_THE_SYSTEM = Path("/proc/sys/net/ipv4/ip_local_port_range")
TAKE = "from tests.serving.ports import free_port; print(*(free_port() for _ in range(200)), flush=True); input()"


def test_no_two_processes_get_the_same_port() -> None:
    command, pipe = [sys.executable, "-c", TAKE], subprocess.PIPE
    others = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT) for _ in range(4)]
    lines = [other.stdout.readline() for other in others if other.stdout]
    for other in others:
        other.communicate("\n")
    ports = [int(port) for line in lines for port in line.split()]
    assert len(ports) == len(set(ports)) == 800


@pytest.mark.skipif(not CHOSEN_BY_THE_SYSTEM.exists(), reason="reads the range as Linux states it")
def test_the_system_gives_the_port_to_no_connection_and_to_no_other_server() -> None:
    first, last = map(int, CHOSEN_BY_THE_SYSTEM.read_text().split())
    assert not first <= free_port() <= last
