"""Weights are interpolated between two generators."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from training.__main__ import app
from training.errors import CheckpointMismatch
from training.weights.blending import blend_files


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    first = {"weight": torch.zeros(3).half(), "count": torch.tensor(1)}
    second = {"weight": torch.ones(3).half(), "count": torch.tensor(2)}
    torch.save(first, tmp_path / "first.pth")
    torch.save(second, tmp_path / "second.pth")
    return tmp_path / "first.pth", tmp_path / "second.pth"


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_the_share_is_that_of_the_second(share: float, files: tuple[Path, Path], tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app, ["blend", *map(str, files), "--share", str(share), "-o", str(tmp_path / "out.pth")]
    )
    assert result.exit_code == 0, result.output
    found = torch.load(tmp_path / "out.pth", weights_only=True)
    assert found["weight"].tolist() == [share] * 3
    assert found["weight"].dtype == torch.float16
    assert found["count"] == 2


def test_nets_that_differ_are_refused(files: tuple[Path, Path], tmp_path: Path) -> None:
    torch.save({"weight": torch.ones(4)}, tmp_path / "other.pth")
    with pytest.raises(CheckpointMismatch, match="one net"):
        blend_files(files[0], tmp_path / "other.pth", 0.5, tmp_path / "out.pth")


@pytest.mark.parametrize("content", [b"", b"no checkpoint"])
def test_what_is_no_state_dict_is_named(content: bytes, files: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "broken.pth").write_bytes(content)
    with pytest.raises(CheckpointMismatch, match="broken"):
        blend_files(files[0], tmp_path / "broken.pth", 0.5, tmp_path / "out.pth")
    torch.save([1, 2], tmp_path / "broken.pth")
    with pytest.raises(CheckpointMismatch, match="broken"):
        blend_files(tmp_path / "broken.pth", files[1], 0.5, tmp_path / "out.pth")


def test_the_folder_of_the_output_is_made(files: tuple[Path, Path], tmp_path: Path) -> None:
    blend_files(*files, 0.5, tmp_path / "new" / "folder" / "out.pth")
    assert (tmp_path / "new" / "folder" / "out.pth").exists()
