from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from engines.manifest import ParityCase
from export.errors import ParityFailed
from export.generators import FAMILIES
from export.generators.family import Bars
from export.parity import FP16, FP32, compare, fp16_missed, kept_promise, missed_bars, require_parity, torch_backend
from export.parity_inputs import ParityInput

SAMPLE = ParityInput("ordinary 1", {"image": np.full((1, 1, 2, 2), 0.5, np.float32)})


def _image(feed):
    return feed["image"]


def _case(**changes):
    return ParityCase(**{"backend": FP16, "inputs": "x", "psnr_db": 60.0, "max_abs": 1e-3, "finite": True, **changes})


def test_identical_outputs_have_no_psnr():
    (case,) = compare(_image, {FP32: _image}, [SAMPLE])
    assert (case.psnr_db, case.max_abs, case.finite, case.inputs) == (None, 0, True, "ordinary 1")


def test_psnr_has_peak_one():
    (case,) = compare(_image, {FP16: lambda feed: feed["image"] + 0.01}, [SAMPLE])
    assert case.psnr_db == pytest.approx(40.0, abs=0.01)
    assert case.max_abs == pytest.approx(0.01, abs=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_single_value_that_is_not_finite_is_seen_on_either_side(value):
    def broken(feed):
        output = feed["image"].copy()
        output[0, 0, 1, 1] = value
        return output

    assert not compare(_image, {FP16: broken}, [SAMPLE])[0].finite
    assert not compare(broken, {FP16: _image}, [SAMPLE])[0].finite


def test_torch_backend_hands_the_tensors_over_in_order():
    class Net(nn.Module):
        def forward(self, first, second):
            return first - second

    feed = {"image": np.float32([3]), "mask": np.float32([1])}
    assert torch_backend(Net())(feed).tolist() == [2]
    assert not torch.is_inference_mode_enabled()


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({}, None),
        ({"psnr_db": None, "max_abs": 0}, None),
        ({"finite": False}, "NaN or infinity"),
        ({"psnr_db": 44.9}, "44.9 dB, less than 45 dB"),
        ({"backend": FP32, "max_abs": 2e-4, "psnr_db": 100}, "differs by 0.0002, more than 0.0001"),
        ({"backend": FP32, "max_abs": 1e-5, "psnr_db": 79}, "79.0 dB, less than 80 dB"),
        ({"backend": FP32, "max_abs": 1e-5, "psnr_db": 100}, None),
    ],
)
def test_a_case_beyond_a_bar_is_named_with_its_fault(changes, fault):
    assert missed_bars([_case(**changes)], Bars()) == (
        [] if fault is None else [f"{_case(**changes).backend} on x: {fault}"]
    )


def test_a_half_graph_under_its_bar_is_not_published_but_the_full_one_may_be():
    cases = [_case(psnr_db=20), _case(backend=FP32, max_abs=0, psnr_db=None)]
    with pytest.raises(ParityFailed, match=r"20\.0 dB, less than 45 dB"):
        require_parity(cases, Bars(), FP16)
    require_parity(cases, Bars(), FP32)


def test_an_fp16_graph_below_its_bar_is_replaced_and_a_note_says_so():
    cases = [_case(psnr_db=20, inputs="a"), _case(psnr_db=30), _case(backend=FP32, max_abs=0, psnr_db=None)]
    assert fp16_missed(cases, Bars()) == (
        "onnx-fp16 on a: 20.0 dB, less than 45 dB, and 1 more: published in FP32 instead"
    )
    assert fp16_missed([_case(), _case(backend=FP32, max_abs=1)], Bars()) is None


def test_an_fp16_graph_beyond_the_promised_grey_levels_is_replaced_and_a_note_says_so():
    cases = [_case(max_abs=1.5 / 255), _case(inputs="y", max_abs=0.5 / 255), _case(backend=FP32, max_abs=2 / 255)]
    assert fp16_missed(cases, Bars(fill_levels=1)) == (
        "onnx-fp16 on x: 1.50 of 255 grey levels off, more than 1: published in FP32 instead"
    )
    assert fp16_missed(cases, Bars(fill_levels=1.5)) is None
    assert fp16_missed(cases, Bars()) is None


def test_a_half_graph_that_misses_both_bars_on_some_inputs_counts_each_input_once():
    cases = [_case(psnr_db=20, max_abs=0.1), _case(inputs="y", max_abs=0.1)]
    assert fp16_missed(cases, Bars(fill_levels=1)) == (
        "onnx-fp16 on x: 20.0 dB, less than 45 dB, and 1 more: published in FP32 instead"
    )


def test_a_published_graph_beyond_the_promised_grey_levels_promises_its_own_and_no_other_does():
    cases = [_case(max_abs=3 / 255), _case(backend=FP32, max_abs=1.25 / 255), _case(backend=FP32, max_abs=2 / 255)]
    note = "onnx-fp32 on x: 2.00 of 255 grey levels off, more than 1: the manifest promises 2, and CPUs compute in FP32"
    assert kept_promise(cases, Bars(fill_levels=1), FP32) == (Bars(fill_levels=2), [note])
    for bars in (Bars(fill_levels=2), Bars()):
        assert kept_promise(cases, bars, FP32) == (bars, [])


def test_a_wrong_full_graph_stops_both():
    cases = [_case(), _case(backend=FP32, max_abs=1)]
    for published in (FP16, FP32):
        with pytest.raises(ParityFailed, match=r"onnx-fp32 on x: differs by 1.*Check the options"):
            require_parity(cases, Bars(), published)


@pytest.mark.parametrize("name", ["lama", "migan", "deepfillv2"])
def test_families_that_replace_another_server_promise_a_fill_within_a_grey_level(name):
    family = FAMILIES[name]
    assert family.bars(family.options()).fill_levels == 1


def test_other_families_promise_no_grey_levels():
    family = FAMILIES["pconv"]
    assert family.bars(family.options(levels=7)).fill_levels is None
