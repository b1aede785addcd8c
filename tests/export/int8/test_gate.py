from __future__ import annotations

import pytest

from engines.manifest import QuantisationFigures, QuantisedLayer
from export.errors import QuantisationRefused
from export.int8.gate import require_quality

GOOD = QuantisationFigures(
    pictures=100, engine="openvino int8", psnr_db=35.0, worst_psnr_db=28.0, lpips=0.102, lpips_fp32=0.1
)
LAYERS = tuple(QuantisedLayer(name=f"layer{number}", alone_db=30.0 + number) for number in range(9))


def test_figures_on_the_bars_pass():
    require_quality(GOOD, LAYERS)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"psnr_db": 34.9}, "34.9 dB on average, less than 35"),
        ({"worst_psnr_db": 27.9}, "27.9 dB at worst, less than 28"),
        ({"lpips": 0.1021}, "LPIPS 0.1021, more than 1.02 × 0.1000"),
        ({"pictures": 99}, "99 pictures, fewer than 100"),
    ],
)
def test_a_missed_bar_names_the_layers_that_cost_most_and_what_to_do(change, said):
    with pytest.raises(QuantisationRefused) as refused:
        require_quality(GOOD.model_copy(update=change), LAYERS)
    message = str(refused.value)
    assert said in message
    assert "layer0 (30.0 dB alone)" in message
    assert "layer5" not in message
    assert "--precision fp16" in message
