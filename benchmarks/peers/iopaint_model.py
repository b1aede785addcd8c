"""Makes the models of the comparison with IOPaint: nets with random weights, as the archives that IOPaint loads.

    .venv/bin/python -m benchmarks.peers.iopaint_model lama FOLDER        # or: migan

FOLDER gets `big-lama.pt`, a trace of (image, mask) → the filled picture, or `migan_traced.pt`, a trace of the net alone
(both named like the published files), and `models-NET`, a model repository with the model that `retouch export` makes
from that file. Times do not depend on the weights.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.gpu_engines.family_cases import CASES, build_net
from benchmarks.harness.inputs import ROOT
from export.pipeline import ExportRequest, export_model


@dataclass(frozen=True)
class Net:
    """A net of IOPaint: its case in family_cases.py, IOPaint's file name, and the side of the pictures in requests."""

    case: str
    archive: str
    side: int


NETS = {"lama": Net("big-lama 256", "big-lama.pt", 256), "migan": Net("MI-GAN 512", "migan_traced.pt", 512)}
"""Nets by IOPaint's name, which the model here has too."""


class PublishedLaMa(nn.Module):
    """The public generator as published: known pixels are taken from the picture; keys start with `model.generator`."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.model = nn.ModuleDict({"generator": net})

    def forward(self, image: Tensor, mask: Tensor) -> Tensor:
        """Map N×3×H×W in [0, 1] and N×1×H×W (1 = hole) to N×3×H×W in [0, 1]."""
        painted: Tensor = self.model["generator"](image, mask)
        return mask * painted + (1 - mask) * image


def write_archive(name: str, path: Path) -> None:
    """Trace a net of random weights and save it."""
    net = build_net(next(case for case in CASES if case.name == NETS[name].case))
    side = NETS[name].side
    image, mask = torch.rand(1, 3, side, side), torch.zeros(1, 1, side, side)
    mask[..., 64:128, 64:128] = 1
    traced, inputs = (
        (PublishedLaMa(net), (image, mask)) if name == "lama" else (net, (torch.cat([0.5 - mask, image], 1),))
    )
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch deprecates the format that IOPaint loads
        torch.jit.save(torch.jit.trace(traced.eval(), inputs), path)


def main() -> None:
    """Write archive and model, unless they exist."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("net", choices=NETS, help="the net")
    parser.add_argument("folder", type=Path, help="folder to write to")
    arguments = parser.parse_args()
    archive: Path = arguments.folder / NETS[arguments.net].archive
    models: Path = arguments.folder / f"models-{arguments.net}"
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if not archive.exists():
        write_archive(arguments.net, archive)
    if not models.exists():
        request = ExportRequest((archive,), arguments.net, ROOT / "tests/data", output=models)
        print(*export_model(request, print).notes, sep="\n")


if __name__ == "__main__":
    main()
