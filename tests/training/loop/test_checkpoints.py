"""Checkpoints are written atomically and belong to one config."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from training.config import PConvConfig
from training.errors import CheckpointMismatch, RunBusy
from training.fill_config import FillConfig
from training.loop.checkpoints import (
    CHECKPOINT_FILE,
    Progress,
    config_digest,
    hold_run,
    read_run,
    save_atomically,
    save_checkpoint,
    save_generator,
)

CPU = torch.device("cpu")
Config = Callable[..., PConvConfig]


def test_a_run_that_has_not_begun_has_no_checkpoint(tmp_path: Path, partial_config: Config) -> None:
    assert read_run(tmp_path, partial_config(), CPU) is None


def test_step_and_state_come_back(tmp_path: Path, partial_config: Config) -> None:
    state = {"net": {"weight": torch.arange(3.0)}, "updates": {"count": 4}}
    save_checkpoint(tmp_path, partial_config(), Progress(12, 3.5), state)
    found = read_run(tmp_path, partial_config(), CPU)
    assert found is not None
    assert found[0] == Progress(12, 3.5)
    assert torch.equal(found[1]["net"]["weight"], torch.arange(3.0))


def test_a_write_that_fails_leaves_the_old_checkpoint(tmp_path: Path, partial_config: Config) -> None:
    save_checkpoint(tmp_path, partial_config(), Progress(1), {})
    with pytest.raises(Exception, match="pickle"):
        save_atomically({"cannot be saved": lambda: None}, tmp_path / CHECKPOINT_FILE)
    found = read_run(tmp_path, partial_config(), CPU)
    assert found is not None
    assert found[0] == Progress(1)


def test_a_write_that_fails_leaves_no_part_behind(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="pickle"):
        save_atomically({"weights": torch.zeros(9), "cannot be saved": lambda: None}, tmp_path / CHECKPOINT_FILE)
    assert list(tmp_path.iterdir()) == []


def test_one_process_at_a_time_trains_in_a_folder(tmp_path: Path) -> None:
    with hold_run(tmp_path), pytest.raises(RunBusy, match="another process trains here"), hold_run(tmp_path):
        pass
    with hold_run(tmp_path):
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04 torn"])
def test_a_damaged_checkpoint_is_named(content: bytes, tmp_path: Path, partial_config: Config) -> None:
    (tmp_path / CHECKPOINT_FILE).write_bytes(content)
    with pytest.raises(CheckpointMismatch, match=CHECKPOINT_FILE):
        read_run(tmp_path, partial_config(), CPU)


def test_a_run_of_another_config_is_refused_with_the_options_that_differ(
    tmp_path: Path, partial_config: Config
) -> None:
    phase = {"steps": 4, "batch": 2, "learning_rate": 1e-3}
    save_checkpoint(tmp_path, partial_config(seed=1, phase=[phase]), Progress(1), {})
    other = partial_config(seed=2, phase=[phase, phase | {"learning_rate": 5e-4}], log_every=9)
    with pytest.raises(
        CheckpointMismatch, match=r"\(seed 1, now 2, phase\.1\.steps left out, now 4, .*0\.0005"
    ) as refused:
        read_run(tmp_path, other, CPU)
    assert "log_every" not in str(refused.value)


def test_a_run_of_an_earlier_version_with_other_options_is_reported_as_one(
    tmp_path: Path, partial_config: Config
) -> None:
    saved = {"step": 1, "spent_s": 0.0, "config": "the digest of other options", "trainee": {}}
    save_atomically(saved, tmp_path / CHECKPOINT_FILE)
    with pytest.raises(CheckpointMismatch, match="begun with other options, or by an earlier version; give another"):
        read_run(tmp_path, partial_config(), CPU)


def test_the_digest_sees_what_moves_weights_and_not_where_files_lie(partial_config: Config) -> None:
    data = {"path": "elsewhere", "load_side": 40, "crop": 32, "threads": 7}
    same = [{"output": "other"}, {"log_every": 9}, {"data": data}]
    other = [
        {"seed": 9},
        {"precision": "bf16"},
        {"generator": {"levels": 3, "width": 8}},
        {"data": data | {"crop": 40}},
    ]
    digest = config_digest(partial_config())
    assert all(config_digest(partial_config(**options)) == digest for options in same)
    assert len({digest, *(config_digest(partial_config(**options)) for options in other)}) == 5


def test_a_run_can_go_on_with_another_bar_for_its_judge_of_small_patches(
    fill_config: Callable[..., FillConfig],
) -> None:
    def digest(**options: Any) -> str:
        return config_digest(
            fill_config(initial="a.pth", judge={"alone": 2}, shares={"perceptual": 0, "patches": 1}, patches=options)
        )

    assert digest(min_accuracy=0.56) == digest(min_accuracy=0.53)
    assert digest(rate=0.5) != digest(rate=0.4)


def test_half_weights_keep_running_statistics_and_counters(tmp_path: Path) -> None:
    state = {
        "conv.weight": torch.rand(2, 2),
        "bn.running_var": torch.rand(2),
        "bn.num_batches_tracked": torch.tensor(7),
    }
    saved = torch.load(save_generator(tmp_path, "generator", state, half=True), weights_only=True)
    assert [tensor.dtype for tensor in saved.values()] == [torch.float16, torch.float32, torch.int64]
    whole = torch.load(save_generator(tmp_path, "generator", state, half=False), weights_only=True)
    assert torch.equal(whole["conv.weight"], state["conv.weight"])


@pytest.mark.parametrize(
    "options",
    [
        lambda path: {"initial": path},
        lambda path: {"lpips_features": path},
        lambda path: {"masks": {"folder": path}},
    ],
    ids=["initial", "lpips_features", "masks.folder"],
)
def test_the_digest_sees_whether_a_file_takes_part_and_not_where_it_lies(
    options: Callable[[str], dict[str, Any]], partial_config: Config
) -> None:
    here, there = (config_digest(partial_config(**options(path))) for path in ("/here/it", "/there/that"))
    assert here == there
    assert here != config_digest(partial_config())
