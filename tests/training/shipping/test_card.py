"""Protocols' names on the card: they are distinct, and omit common values."""

from __future__ import annotations

from pathlib import Path

import pytest

from training.evaluate.cases import Protocol
from training.evaluate.holes import Band
from training.shipping.card import protocol_name, quality_of


def _protocol(**fields):
    return Protocol(data=Path("heldout"), **fields).model_dump(mode="json") | {"data": "heldout"}


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "heldout, 256² crops"),
        ({"size": None}, "heldout, whole, longer side 512"),
        ({"kinds": ("boxes", "blobs")}, "heldout, 256² crops, boxes and blobs"),
        ({"kinds": ("boxes",), "coverage": Band(0.5, 0.75)}, "heldout, 256² crops, boxes, 50-75 %"),
        ({"pairs": "BtoA"}, "heldout, pairs BtoA"),
    ],
)
def test_protocols_are_named(fields, name):
    assert protocol_name({"protocol": _protocol(**fields)}) == name


def test_the_quality_block_has_own_figures_and_ratios_to_telea():
    figures = {"model": {"all": {"pictures": 20, "psnr_db": 22.0, "dists": 0.1, "kid": 0.05}}}
    gains = {"telea": {"psnr_gain_db": 1.5, "dists_ratio": 0.64, "kid_ratio": 0.06, "l1_ratio": 0.9}}
    found = quality_of([{"protocol": _protocol(), "figures": figures, "gains": gains}])
    assert found == {
        "heldout, 256² crops: PSNR dB": 22.0,
        "heldout, 256² crops: DISTS": 0.1,
        "heldout, 256² crops: KID": 0.05,
        "heldout, 256² crops: PSNR over Telea dB": 1.5,
        "heldout, 256² crops: DISTS as a part of Telea's": 0.64,
        "heldout, 256² crops: KID as a part of Telea's": 0.06,
    }
