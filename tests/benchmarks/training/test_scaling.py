"""The GPU for a run on one GPU: benchmarks/training/scaling.py."""

from __future__ import annotations

from benchmarks.training.scaling import only_gpu


def test_a_run_on_one_gpu_gets_one_of_those_that_are_visible() -> None:
    assert only_gpu(1, {}) == {"CUDA_VISIBLE_DEVICES": "1"}
    assert only_gpu(1, {"CUDA_VISIBLE_DEVICES": "2,3"}) == {"CUDA_VISIBLE_DEVICES": "3"}
