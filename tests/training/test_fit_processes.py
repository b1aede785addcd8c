"""Whole runs in separate processes: killed and resumed, or distributed over two."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from tests.serving.waiting import wait_until
from tests.training.whole_runs import PHASES, assert_same, fit_as_one_of, fit_until_killed, run, save_untrained_vgg16
from training.config import load_config

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
Make = Callable[..., dict[str, Any]]
Write = Callable[[dict[str, Any], Path], Path]
FitInTwo = Callable[[Path, ForkServerContext], None]


@pytest.fixture
def make(model: str, request: pytest.FixtureRequest) -> Make:
    found: Make = request.getfixturevalue(model)
    return found


@pytest.fixture
def pdgan_on_fillnet_run(pdgan_run: Make, tmp_path: Path) -> Make:
    """Return the options of a tiny PD-GAN run on FillNet, with a discriminator on VGG16's features."""
    fill = {"fill_widths": "4,8", "fill_encoder": "0,1", "fill_decoder": "1,1", "fill_context": "0,2"}
    features = str(save_untrained_vgg16(tmp_path / "vgg16.safetensors"))
    projected = {"width": 4, "penalty": 0.0, "penalty_every": 1}
    generator = {"ngf": 2, "z_dim": 4, **fill}
    return lambda **options: pdgan_run(generator=generator, features=features, projected=projected, **options)


@pytest.fixture(scope="module")
def forking() -> ForkServerContext:
    """A context whose processes use one CPU thread and start with torch loaded, which saves each 8 s of a core."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["training.fit", "torch._dynamo"])  # which the first optimiser would load
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        forkserver.ensure_running()
    return context


@contextmanager
def running(process: ForkServerProcess) -> Iterator[None]:
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def await_lines(log: Path, wanted: int, process: ForkServerProcess) -> None:
    def written() -> bool:
        assert process.is_alive(), "ended before it could be killed"
        return log.exists() and log.read_text().count("\n") >= wanted

    wait_until(written, 600)  # importing torch took over 100 s on a machine with ten such processes


LARGE = [
    {"part": "prior", "steps": 2, "batch": 1, "learning_rate": 2e-3},
    {"part": "diverse", "steps": 3, "batch": 1, "learning_rate": 1e-3},
]
"""Phases with fewer steps, for nets that only take 256²."""
LATE = [
    {"part": "prior", "steps": 1, "batch": 1, "learning_rate": 2e-3},
    {"part": "diverse", "steps": 4, "batch": 1, "learning_rate": 1e-3, "diversity": 0.0, "projected": 1.0},
]
"""Phases whose first checkpoint is inside the second: all optimisers of that have moments then."""
WIDE = [phase | {"steps": 12} for phase in PHASES]
"""Phases with fewer steps, for a net with slow steps."""
NET = {"widths": "8,8", "encoder": "1,0", "decoder": "0,1", "context": "0,2"}
JUDGES = {"shares": {"perceptual": 0.0, "patches": 0.2}, "patches": {"widths": [4, 4]}}


@pytest.mark.parametrize(
    ("model", "killed_after", "given"),
    [
        *(("partial_run", 17, {}), ("pix2pix_run", 45, {}), ("fill_run", 33, {"generator": NET, **JUDGES})),
        *(("dcgan_run", 51, {}), ("pix2pixhd_run", 29, {}), ("pgn_run", 9, {"phase": WIDE})),
        *(("pdgan_run", 3, {"phase": LARGE}), ("pdgan_on_fillnet_run", 3, {"phase": LATE})),
    ],
)
def test_a_killed_run_goes_on_to_the_same_weights_as_an_unbroken_one(
    make: Make, killed_after: int, given: Any, tmp_path: Path, write_config: Write, forking: ForkServerContext
) -> None:
    options = {"phase": PHASES, **given}
    total = sum(phase["steps"] for phase in options["phase"])
    options["checkpoint_every"] = max(2, total // 11)
    unbroken = load_config(write_config(make(**options, output=str(tmp_path / "unbroken")), tmp_path / "unbroken.toml"))
    assert run(unbroken).finished
    path = write_config(make(**options, output=str(tmp_path / "killed")), tmp_path / "killed.toml")
    killed = load_config(path)
    process = forking.Process(target=fit_until_killed, args=(path,))
    with running(process):
        await_lines(killed.output / "log.jsonl", killed_after, process)
    assert process.exitcode == -signal.SIGKILL
    assert run(killed).finished
    assert_same(unbroken, killed)
    steps = [json.loads(line)["step"] for line in (killed.output / "log.jsonl").read_text().splitlines()]
    assert steps == list(range(1, total + 1))


def by_torchrun(config: Path, _forking: ForkServerContext) -> None:
    """Run `python -m training fit` under torchrun."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [*torchrun, "-m", "training", "fit", str(config)]
    subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=True, timeout=240)


def as_torchrun_does(config: Path, forking: ForkServerContext) -> None:
    """Run the command's function in two processes that connect as torchrun's do."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    pair = [forking.Process(target=fit_as_one_of, args=(2, rank, store.port, config)) for rank in range(2)]
    with running(pair[0]), running(pair[1]):
        for process in pair:
            process.join(240)
            assert process.exitcode == 0


@pytest.mark.parametrize(
    ("model", "batch", "fit_in_two"),
    [("partial_run", 8, by_torchrun), ("pix2pixhd_run", 8, as_torchrun_does), ("pgn_run", 16, as_torchrun_does)],
)
def test_two_processes_share_a_batch_and_log_the_same_losses(
    make: Make, batch: int, fit_in_two: FitInTwo, write_config: Write, tmp_path: Path, forking: ForkServerContext
) -> None:
    phase = {"steps": 6, "batch": batch, "learning_rate": 1e-3}
    alone = load_config(write_config(make(phase=[phase], output=str(tmp_path / "alone")), tmp_path / "alone.toml"))
    run(alone)
    path = write_config(make(phase=[phase], output=str(tmp_path / "two")), tmp_path / "two.toml")
    fit_in_two(path, forking)
    curves = [
        [json.loads(line)["loss"] for line in (tmp_path / name / "log.jsonl").read_text().splitlines()]
        for name in ("alone", "two")
    ]
    assert len(curves[0]) == 6
    assert curves[1] == pytest.approx(curves[0], rel=0.05)
