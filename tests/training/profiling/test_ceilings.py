import torch

from training.profiling.ceilings import measure_ceilings


def test_every_precision_asked_for_gets_a_roof_and_tf32_is_left_as_it_was():
    before = torch.get_float32_matmul_precision()
    found = measure_ceilings(torch.device("cpu"), ("fp32", "tf32", "bf16"))
    assert list(found.flop_per_s) == ["fp32", "tf32", "bf16"]
    assert min(found.flop_per_s.values()) > 1e6
    assert found.bytes_per_s > 1e6
    assert torch.get_float32_matmul_precision() == before
