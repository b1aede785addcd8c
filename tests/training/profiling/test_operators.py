import pytest
import torch
from torch.nn.functional import conv2d

from training.profiling.operators import top_operators, trace_calls

CPU = torch.device("cpu")


def _by_name(calls):
    return {found.name: found for found in calls}


def test_flop_and_bytes_of_a_convolution_and_its_backward_are_what_one_computes_by_hand():
    image, weight = torch.randn(2, 3, 16, 16), torch.randn(5, 3, 3, 3, requires_grad=True)

    def step():
        conv2d(image, weight, padding=1).sum().backward()

    found = _by_name(trace_calls(step, CPU))
    forward, backward = found["convolution"], found["convolution_backward"]
    products = 2 * 16 * 16 * 5 * 3 * 3 * 3  # output values × window values
    assert forward.flop == 2 * products
    assert backward.flop == 2 * products  # only for the weight: the image needs no gradient
    assert forward.bytes == 4 * (image.numel() + weight.numel() + 2 * 5 * 16 * 16)
    assert forward.shapes == "2×3×16×16 5×3×3×3"
    assert forward.device_s > 0


def test_calls_with_the_same_shapes_are_one_group_and_views_move_nothing():
    one, other = torch.randn(8, 8), torch.randn(16, 16)

    def step():
        for matrix in (one, one.clone(), other):
            (matrix @ matrix).view(-1).add_(1)

    calls = trace_calls(step, CPU)
    assert {(found.shapes, found.count, found.flop) for found in calls if found.name == "mm"} == {
        ("8×8 8×8", 2, 2 * 2 * 8**3),
        ("16×16 16×16", 1, 2 * 16**3),
    }
    assert all(found.bytes == 0 for found in calls if found.name == "view")
    (added,) = (found for found in calls if found.name == "add_" and found.count == 3)
    assert added.bytes == 2 * 4 * (64 + 64 + 256)


def test_half_precision_moves_half_the_bytes():
    def multiplied(dtype):
        matrix = torch.ones(32, 32, dtype=dtype)
        return _by_name(trace_calls(lambda: matrix @ matrix, CPU))["mm"]

    assert multiplied(torch.bfloat16).bytes * 2 == multiplied(torch.float32).bytes == 3 * 32 * 32 * 4


def test_operators_are_ranked_by_their_own_time():
    matrix = torch.randn(256, 256)

    def step():
        (matrix @ matrix).relu()

    rows = top_operators(step, CPU, steps=3)
    assert [row.device_s for row in rows] == sorted((row.device_s for row in rows), reverse=True)
    assert sum(row.share for row in rows) == pytest.approx(1, abs=0.01)
    assert next(row for row in rows if row.name == "aten::mm").calls == 3


def test_an_operator_is_listed_with_its_cpu_time_and_the_memory_that_it_took():
    kept = []

    def step():
        kept.append(torch.ones(64, 64) @ torch.ones(64, 64))

    row = next(row for row in top_operators(step, CPU, steps=2) if row.name == "aten::mm")
    assert row.memory_bytes == 2 * 64 * 64 * 4
    assert row.cpu_s >= row.self_cpu_s == row.device_s > 0
