"""Cells: their names, which of them a machine can run, and what they share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from training.config import PConvConfig
from training.errors import ConfigInvalid
from training.study.cells import (
    BEST_ON_TWO,
    DEFAULT,
    Cell,
    Machine,
    best_on_two,
    config_of_cell,
    examine_machine,
    parse_cell,
    reason_not_run,
)
from training.study.sources import STUDIES


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("fp32", Cell("fp32", "fp32")),
        ("bf16-nhwc", Cell("bf16-nhwc", "bf16", channels_last=True)),
        ("fp16-compiled", Cell("fp16-compiled", "fp16", compiled=True, channels_last=True)),
        ("bf16-compiled-graphs", Cell("bf16-compiled-graphs", "bf16", compiled=True, channels_last=True, graphs=True)),
        ("tf32-batch2-2gpu", Cell("tf32-batch2-2gpu", "tf32", batches=2, gpus=2)),
    ],
)
def test_a_cells_name_says_how_it_computes(name: str, cell: Cell) -> None:
    assert parse_cell(name) == cell


@pytest.mark.parametrize("name", ["fp8", "bf16-fast", "bf16-2gpu-compiled", ""])
def test_an_unknown_cell_is_refused_with_the_way_to_write_it(name: str) -> None:
    with pytest.raises(ConfigInvalid, match="as in bf16-compiled-batch2"):
        parse_cell(name)


def test_every_cell_that_a_study_names_can_be_parsed() -> None:
    for name in {*DEFAULT, *(cell for study in STUDIES.values() for cell in study.cells)} - {BEST_ON_TWO}:
        parse_cell(name)


@pytest.mark.parametrize(
    ("name", "machine", "reason"),
    [
        ("fp32-2gpu", Machine(1, (9, 0)), "needs 2 GPUs, and 1"),
        ("tf32", Machine(0), "NVIDIA's GPUs"),
        ("bf16-compiled", Machine(0, has_compiler=False), "C++ compiler"),
        ("bf16", Machine(1, (7, 0)), "before Ampere"),
        ("fp16-compiled", Machine(1, (6, 1)), "from Volta"),
        ("fp16-compiled", Machine(1, (7, 0)), None),
        ("bf16-compiled-2gpu", Machine(2, (9, 0)), None),
        ("tf32", Machine(1, None), None),
        ("bf16-compiled", Machine(0), None),
        ("bf16-graphs", Machine(0), "NVIDIA's GPUs"),
        ("bf16-graphs", Machine(1, (9, 0)), None),
    ],
)
def test_a_cell_that_a_machine_cannot_run_has_a_reason(name: str, machine: Machine, reason: str | None) -> None:
    found = reason_not_run(parse_cell(name), machine)
    assert found is None if reason is None else found is not None and reason in found


def test_the_best_on_two_gpus_is_the_fastest_of_one_at_the_same_batch() -> None:
    speeds = {
        "fp32": 10.0,
        "fp16-compiled": 30.0,
        "bf16-compiled": 40.0,
        "bf16-compiled-graphs": 45.0,
        "bf16-compiled-batch2": 50.0,
        "fp32-2gpu": 60.0,
    }
    assert best_on_two(speeds) == Cell(BEST_ON_TWO, "bf16", compiled=True, channels_last=True, graphs=True, gpus=2)
    assert best_on_two({"fp32-2gpu": 1.0}) is None


def test_a_study_on_the_cpu_uses_no_gpu() -> None:
    assert examine_machine("cpu").gpus == 0


def test_cells_train_one_phase_from_one_seed_and_differ_in_arithmetic_alone(
    partial_config: Callable[..., PConvConfig],
) -> None:
    phase = {"steps": 5000, "batch": 4, "learning_rate": 1e-3, "warm_up": 500}
    config = partial_config(phase=[phase, {**phase, "batch": 6}], seconds=100.0)
    base, other = (config_of_cell(config, parse_cell(name), 1, 50, 9) for name in ("fp32", "bf16-compiled"))
    assert (base.precision, base.compile, base.channels_last) == ("fp32", False, False)
    assert (other.precision, other.compile, other.channels_last) == ("bf16", True, True)
    assert base.phase == other.phase
    assert (base.phase[0].steps, base.phase[0].batch, base.phase[0].warm_up, base.seconds) == (50, 6, 5, None)
    assert base.data.limit == 9
    assert config_of_cell(config, parse_cell("bf16-graphs"), 1, 50, 9).cuda_graphs
    assert config_of_cell(config, parse_cell("fp32-batch2"), 1, 50, 9).phase[0].batch == 12
