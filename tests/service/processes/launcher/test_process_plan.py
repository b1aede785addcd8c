"""The plan of processes: restarts are paced, and memory limits are divided."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.core.settings import Settings
from service.processes.launcher.process_plan import (
    HostFacts,
    Restarts,
    assign_gpus,
    choose_processes,
    cores_for_pictures,
    divide_settings,
    unused_gpu,
)


def test_a_process_that_lived_well_is_started_again_at_once() -> None:
    restarts = Restarts()
    assert [restarts.pause_s(60.0) for _ in range(5)] == [0.0] * 5


def test_one_that_dies_young_again_and_again_is_started_ever_more_rarely() -> None:
    restarts = Restarts()
    pauses = [restarts.pause_s(1.0) for _ in range(9)]
    assert pauses[0] == 0.0
    assert pauses == sorted(pauses)
    assert pauses[-1] == 10.0
    assert restarts.pause_s(60.0) == 0.0
    assert restarts.pause_s(1.0) == 0.0


def test_memory_limits_are_divided_among_front_ends_and_other_limits_are_not() -> None:
    whole = Settings(workers=4, max_memory_mb=4096, spool_max_items=10, max_queue_size=256)
    share = divide_settings(whole, 4, cores=16)
    assert (share.max_decoded_mb, share.spool_max_items, share.codec_threads) == (512, 3, 4)
    assert share.max_queue_size == 256
    assert divide_settings(whole.model_copy(update={"codec_threads": 7}), 4, cores=2).codec_threads == 7
    assert divide_settings(whole, 4, cores=2).codec_threads == 1


def test_there_is_an_engine_process_for_each_gpu_that_may_be_seen_and_one_without(tmp_path: Path) -> None:
    for node in ("nvidia1", "nvidia0", "nvidia10", "nvidiactl", "nvidia-uvm"):
        (tmp_path / node).touch()
    auto = Settings(workers=2)
    assert assign_gpus(auto, {}, tmp_path) == ["0", "1", "2"], "CUDA counts the GPUs that are there"
    assert assign_gpus(auto, {"CUDA_VISIBLE_DEVICES": "3, GPU-a1"}, tmp_path) == ["3", "GPU-a1"]
    assert assign_gpus(auto, {"CUDA_VISIBLE_DEVICES": ""}, tmp_path) == [""]
    assert assign_gpus(auto, {}, tmp_path / "none") == [""]
    assert assign_gpus(Settings(workers=2, engine="openvino"), {}, tmp_path) == [""]
    assert assign_gpus(Settings(workers=2, device="cpu"), {}, tmp_path) == [""]
    assert assign_gpus(Settings(workers=2, engine_processes=4), {}, tmp_path) == ["0", "1", "2", "0"]


FAKE_DEVICE = Settings(engine="fake", fake_batch_ms=8)
GPU_HOST = HostFacts(16, ["0"], True)


@pytest.mark.parametrize(
    ("settings", "host", "cores"),
    [
        pytest.param(Settings(), GPU_HOST, 15, id="a core stays for the engine process"),
        pytest.param(Settings(), HostFacts(16, ["0", "1"], True), 14, id="a core for each engine process"),
        pytest.param(
            Settings(engine="fake", fake_batch_ms=8), HostFacts(4.5, [""], False), 3, id="a container's quota"
        ),
        pytest.param(Settings(), HostFacts(1, ["0"], True), 0, id="one core"),
        pytest.param(Settings(), HostFacts(0.5, ["0"], True), 0, id="half a core"),
        pytest.param(Settings(), HostFacts(16, [""], False), 0, id="an engine that computes on the cores"),
        pytest.param(Settings(), HostFacts(16, ["0"], False), 0, id="a GPU that nothing here can use"),
        pytest.param(Settings(codec_threads=1), GPU_HOST, 0, id="a number of threads that was set"),
    ],
)
def test_front_ends_are_told_of_cores_that_no_engine_needs(settings: Settings, host: HostFacts, cores: int) -> None:
    assert cores_for_pictures(settings, host) == cores


@pytest.mark.parametrize(
    ("gpus", "packages", "is_said"),
    [(["0"], False, True), (["0"], True, False), ([""], False, False), ([], False, False)],
)
def test_a_gpu_whose_packages_are_missing_is_not_passed_over_in_silence(gpus, packages, is_said) -> None:
    assert ("retouch install-gpu" in unused_gpu(HostFacts(8, gpus, packages))) is is_said


AUTO_ON_CPU = Settings(engine="openvino")


@pytest.mark.parametrize(
    ("settings", "host", "front_ends", "why"),
    [
        pytest.param(AUTO_ON_CPU, HostFacts(64, [""], False), 0, "on the CPU", id="a CPU computes"),
        pytest.param(Settings(), HostFacts(16, ["0"], True), 16, "each of 16 cores", id="a GPU and its cores"),
        pytest.param(Settings(), HostFacts(96, ["0", "1"], True), 16, "a GPU", id="no more than were measured"),
        pytest.param(Settings(), HostFacts(2.5, ["0"], True), 1, "a GPU", id="a GPU and few cores"),
        pytest.param(Settings(), HostFacts(0.5, ["0"], True), 0, "one core", id="a GPU and half a core"),
        pytest.param(Settings(), HostFacts(16, ["0"], False), 0, "on the CPU", id="a GPU that nothing here can use"),
        pytest.param(FAKE_DEVICE, HostFacts(2, [""], False), 1, "waits", id="a device that is only waited for"),
        pytest.param(Settings(engine="fake"), HostFacts(2, [""], False), 0, "on the CPU", id="one that takes no time"),
        pytest.param(FAKE_DEVICE, HostFacts(16, [""], False, "darwin"), 0, "Linux", id="another system"),
        pytest.param(Settings(workers=3), HostFacts(16, [""], False), 3, "setting", id="a number that was set"),
        pytest.param(Settings(workers=0), HostFacts(16, ["0"], True), 0, "setting", id="one process that was set"),
    ],
)
def test_processes_are_chosen_by_device_and_cores(
    settings: Settings, host: HostFacts, front_ends: int, why: str
) -> None:
    chosen = choose_processes(settings, host)
    assert chosen.front_ends == front_ends
    assert why in chosen.why
