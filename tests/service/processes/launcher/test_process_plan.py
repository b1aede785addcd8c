"""Restarts are paced, and limits of memory divided."""

from __future__ import annotations

from pathlib import Path

from service.core.settings import Settings
from service.processes.launcher.process_plan import Restarts, assign_gpus, divide_settings


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


def test_limits_of_memory_are_divided_among_front_ends_and_the_house_is_not() -> None:
    whole = Settings(workers=4, max_memory_mb=4096, spool_max_items=10, max_queue_size=256)
    share = divide_settings(whole, cores=16)
    assert (share.max_decoded_mb, share.spool_max_items, share.codec_threads) == (512, 3, 4)
    assert share.max_queue_size == 256
    assert divide_settings(whole.model_copy(update={"codec_threads": 7}), cores=2).codec_threads == 7
    assert divide_settings(whole, cores=2).codec_threads == 1


def test_there_is_an_engine_process_for_each_gpu_that_may_be_seen_and_one_without(tmp_path: Path) -> None:
    for node in ("nvidia1", "nvidia0", "nvidia10", "nvidiactl", "nvidia-uvm"):
        (tmp_path / node).touch()
    auto = Settings(workers=2)
    assert assign_gpus(auto, {}, tmp_path) == ["0", "1", "2"], "CUDA counts the GPUs that are there"
    assert assign_gpus(auto, {"CUDA_VISIBLE_DEVICES": "3, GPU-a1"}, tmp_path) == ["3", "GPU-a1"]
    assert assign_gpus(auto, {"CUDA_VISIBLE_DEVICES": ""}, tmp_path) == [""]
    assert assign_gpus(auto, {}, tmp_path / "none") == [""]
    assert assign_gpus(Settings(workers=2, engine="openvino"), {}, tmp_path) == [""]
    assert assign_gpus(Settings(workers=2, engine_processes=4), {}, tmp_path) == ["0", "1", "2", "0"]
