import os
import subprocess
import sys

import pytest

from service.lifecycle.cores import usable_cores


def test_cores_are_those_that_this_process_may_use() -> None:
    assert usable_cores() == len(os.sched_getaffinity(0))


def test_a_process_kept_to_one_core_counts_one() -> None:
    core = min(os.sched_getaffinity(0))
    cores = "from service.lifecycle.cores import usable_cores; print(usable_cores())"
    code = f"import os; os.sched_setaffinity(0, {{{core}}}); {cores}"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "1"


def test_elsewhere_they_are_the_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 12)
    assert usable_cores() == 12
