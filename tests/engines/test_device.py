"""A GPU is noticed by the kernel's device files."""

from __future__ import annotations

import pytest

from engines.device import has_nvidia_gpu


@pytest.mark.parametrize("node", ["nvidiactl", "nvidia0", "dxg"])
def test_device_files_of_the_driver_are_a_gpu(tmp_path, node):
    (tmp_path / node).touch()
    assert has_nvidia_gpu(tmp_path, "linux")


def test_linux_without_them_has_none(tmp_path):
    (tmp_path / "null").touch()
    assert not has_nvidia_gpu(tmp_path, "linux")


def test_other_systems_leave_the_answer_to_cuda(tmp_path):
    assert has_nvidia_gpu(tmp_path, "win32")
