"""The processes, devices and precisions of a run."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from training.config import PConvConfig
from training.errors import ConfigInvalid
from training.loop.runtime import Runtime, start_runtime

CPU = torch.device("cpu")


def test_a_batch_is_split_evenly_and_wholly() -> None:
    shares = [Runtime(CPU, "fp32", rank=rank, world=4).samples_of_process(12) for rank in range(4)]
    assert shares == [(0, 3), (3, 6), (6, 9), (9, 12)]
    with pytest.raises(ConfigInvalid, match="multiple"):
        Runtime(CPU, "fp32", world=4).samples_of_process(10)


def test_alone_nothing_is_exchanged() -> None:
    runtime, tensor = Runtime(CPU, "fp32"), torch.tensor([3.0])
    runtime.average_over_processes([tensor])
    runtime.broadcast_buffers(torch.nn.BatchNorm2d(2))
    assert tensor == 3
    assert runtime.any_process(True)
    assert not runtime.any_process(False)
    assert runtime.is_leader


@pytest.mark.parametrize(
    ("precision", "kind"), [("fp32", torch.float32), ("tf32", torch.float32), ("bf16", torch.bfloat16)]
)
def test_precision_decides_what_products_compute_in(precision: str, kind: torch.dtype) -> None:
    with Runtime(CPU, precision).autocast():  # type: ignore[arg-type]
        assert (torch.rand(2, 2) @ torch.rand(2, 2)).dtype == kind


def test_weights_lie_in_the_order_that_the_config_asks_for(partial_config: Callable[..., PConvConfig]) -> None:
    for wanted in (True, False):
        net = torch.nn.Conv2d(4, 4, 3)
        with start_runtime(partial_config(channels_last=wanted), "cpu") as runtime:
            runtime.move_to_device(net)
        assert net.weight.is_contiguous(memory_format=torch.channels_last) == wanted


def test_determinism_ends_with_the_run(partial_config: Callable[..., PConvConfig]) -> None:
    with start_runtime(partial_config(deterministic=True), "cpu"):
        assert torch.are_deterministic_algorithms_enabled()
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    """Pretend that the host has two GPUs; returns the devices that were set."""
    chosen: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    return chosen


@pytest.mark.parametrize(
    ("name", "local_rank", "wanted"),
    [("cuda", None, 0), ("cuda", "1", 1), (None, "1", 1), (None, None, 0), ("cuda:1", "0", 1)],
)
def test_a_gpu_without_a_number_is_that_of_the_local_rank(
    name: str | None,
    local_rank: str | None,
    wanted: int,
    two_gpus: list[torch.device],
    partial_config: Callable[..., PConvConfig],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if local_rank is not None:
        monkeypatch.setenv("LOCAL_RANK", local_rank)
    with start_runtime(partial_config(), name) as runtime:
        assert runtime.device == torch.device("cuda", wanted)
    assert two_gpus == [torch.device("cuda", wanted)]


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "meta", ""])
def test_a_device_that_is_none_is_named(name: str, partial_config: Callable[..., PConvConfig]) -> None:
    with pytest.raises(ConfigInvalid, match=f"device '{name}'.*cuda:N"), start_runtime(partial_config(), name):
        pass


def test_a_gpu_that_is_not_there_is_named(
    two_gpus: list[torch.device], partial_config: Callable[..., PConvConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigInvalid, match=r"cuda:2.*sees 2"), start_runtime(partial_config(), "cuda:2"):
        pass
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ConfigInvalid, match=r"cuda:0.*sees none"), start_runtime(partial_config(), "cuda"):
        pass
    assert two_gpus == []


def test_nets_are_compiled_on_a_gpu_and_on_a_cpu_if_asked_for() -> None:
    on_cpu, on_gpu = Runtime(CPU, "fp32"), Runtime(torch.device("cuda:0"), "fp32")
    assert [on_cpu.compiles(wanted) for wanted in (None, True, False)] == [False, True, False]
    assert [on_gpu.compiles(wanted) for wanted in (None, True, False)] == [True, True, False]
