"""Idempotency keys and cached results stay valid after an upgrade that adds an option."""

from __future__ import annotations

from service.core.order import Order
from service.core.schemas import InpaintOptions
from service.repeats.request_digests import fingerprint_of

FILES = {"image": b"one", "mask": b"two"}
BEFORE_TEXTURE = "9fd51f574b12ad5413123702e97b53e853ac38a4f5db61553588c6461c21cc07"
"""Fingerprint computed at commit 53f4c639, before `texture` existed."""


def test_a_plain_order_has_the_fingerprint_that_it_had_before_the_option() -> None:
    assert fingerprint_of(Order("inpaint", FILES, InpaintOptions(seed=7)), "photos/5") == BEFORE_TEXTURE
    asked_for_default = InpaintOptions.model_validate({"seed": 7, "texture": "none"})
    assert fingerprint_of(Order("inpaint", FILES, asked_for_default), "photos/5") == BEFORE_TEXTURE


def test_an_order_that_uses_the_option_has_another_one() -> None:
    order = Order("inpaint", FILES, InpaintOptions(seed=7, texture="copied"))
    assert fingerprint_of(order, "photos/5") != BEFORE_TEXTURE
