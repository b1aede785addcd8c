"""A file that cannot be read safely is refused with what to do about it."""

from __future__ import annotations

import pytest
import torch

from export.checkpoint import read_checkpoint
from export.errors import CheckpointRefused

STATE = {"enc.weight": torch.zeros(2)}


class Settings:
    lr = 1


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "old"])
@pytest.mark.parametrize("value", [Settings(), {"netG": STATE, "config": Settings()}], ids=["net", "beside"])
def test_a_class_of_the_user_is_named_with_the_lines_that_save_the_weights_without_it(tmp_path, value, zipped):
    path = tmp_path / "net.pth"
    torch.save(value, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(CheckpointRefused) as refused:
        read_checkpoint(path)
    message = str(refused.value)
    assert f"{path}: needs tests.export.archives.test_formats.Settings to be unpickled, which could run code" in message
    assert "torch.save(net.state_dict(), 'weights.pth')" in message
    assert "torch.save(saved['NAME'], 'weights.pth')" in message
