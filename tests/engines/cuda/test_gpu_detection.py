"""GPUs are detected by the kernel's device files."""

from __future__ import annotations

import pytest

from engines.cuda.gpu_detection import has_nvidia_gpu, visible_gpus


@pytest.mark.parametrize("node", ["nvidiactl", "nvidia0", "dxg"])
def test_device_files_of_the_driver_are_a_gpu(tmp_path, node):
    (tmp_path / node).touch()
    assert has_nvidia_gpu(tmp_path, "linux")


def test_linux_without_them_has_none(tmp_path):
    (tmp_path / "null").touch()
    assert not has_nvidia_gpu(tmp_path, "linux")


def test_other_systems_leave_the_answer_to_cuda(tmp_path):
    assert has_nvidia_gpu(tmp_path, "win32")


def test_a_container_with_one_gpu_of_the_host_calls_it_0_as_cuda_does(tmp_path):
    for node in ("nvidia3", "nvidiactl", "nvidia-uvm"):
        (tmp_path / node).touch()
    assert visible_gpus({}, tmp_path) == ["0"]


def test_gpus_that_were_chosen_keep_the_names_they_were_chosen_by(tmp_path):
    (tmp_path / "nvidia0").touch()
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "3, MIG-1f, -1"}, tmp_path) == ["3", "MIG-1f"]
