from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; pip install -e '.[export]'")
from benchmarks.gpu_engines.family_cases import TINY_CASES, build_net  # noqa: E402 -- needs torch
from benchmarks.gpu_engines.lama_forms import FORMS, Form  # noqa: E402 -- needs torch
from export.generators import FAMILIES  # noqa: E402 -- needs torch


@pytest.fixture(scope="module")
def lowered():
    case = next(case for case in TINY_CASES if case.family == "lama")
    return FAMILIES["lama"].lower(build_net(case), case.parsed)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_lama_computes_what_the_lowered_net_does(form, lowered):
    image, mask = torch.rand(2, 3, 48, 40), (torch.rand(2, 1, 48, 40) < 0.2).float()
    with torch.inference_mode():
        assert torch.allclose(Form(lowered, form)(image, mask), lowered(image, mask), atol=1e-6)
