"""Compares fills over HTTP with those of the original projects' scripts: the same random weights and photographs.

    benchmarks/peers/install.sh iopaint
    .venv/bin/python -m benchmarks.peers.public_scripts migan-256 CHECKOUT FOLDER [--json FILE]

CHECKOUT is Picsart-AI-Research/MI-GAN (`scripts/demo.py`, for migan-256 and migan-512) or nipponjo/deepfillv2-pytorch
(`test.py`, for deepfillv2 and deepfillv2-tf). The scripts run unchanged, in IOPaint's environment, on the CPU. FOLDER
gets the weights' file, the model that `retouch export` makes from it, and the pictures. Retouch serves the model with
the precision that it chooses, and with a manifest without `fill_levels`, so that bf16 is allowed. Compared are the
levels inside the masks, beyond the seam.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from benchmarks.gpu_engines.family_cases import CASES, Case, build_net
from benchmarks.harness.inputs import ROOT
from benchmarks.harness.outputs import add_output_flags, write_outputs
from benchmarks.harness.processes import Server
from benchmarks.peers.iopaint_side_by_side import pictures, request_of, start, start_retouch
from export.pipeline import ExportRequest, export_model
from retouch.bench.load import run_on_uvloop
from service.imaging.pasting.areas import FEATHER

_PYTHON = (str(ROOT / ".venv-peers/iopaint/bin/python"), str(ROOT / "benchmarks/peers/without_cuda.py"))
Fills = list[NDArray[np.uint8]]


@dataclass(frozen=True)
class Paths:
    """The file of weights, and the folders of a script's pictures and fills (NUMBER.png)."""

    weights: Path
    photos: Path
    masks: Path
    fills: Path

    def numbers(self) -> Iterator[str]:
        """Yield the pictures' names."""
        yield from (path.name for path in sorted(self.photos.iterdir()))


def _migan(side: int) -> Callable[[Paths], Iterator[list[str]]]:
    def commands(paths: Paths) -> Iterator[list[str]]:
        arguments = ["scripts.demo", "--model-name", f"migan-{side}", "--model-path", str(paths.weights)]
        arguments += [
            "--images-dir",
            str(paths.photos),
            "--masks-dir",
            str(paths.masks),
            "--output-dir",
            str(paths.fills),
        ]
        yield [*arguments, "--device", "cpu", "--invert-mask"]

    return commands


def _deepfill(paths: Paths) -> Iterator[list[str]]:
    for name in paths.numbers():
        arguments = ["test", "--checkpoint", str(paths.weights), "--image", str(paths.photos / name)]
        yield [*arguments, "--mask", str(paths.masks / name), "--out", str(paths.fills / name)]


@dataclass(frozen=True)
class Script:
    """A net, and the calls of the public script that fill the pictures."""

    case: Case
    commands: Callable[[Paths], Iterator[list[str]]]


def _case(name: str, **options: str) -> Case:
    case = next(case for case in CASES if case.name == name)
    return replace(case, options={**case.options, **options})


SCRIPTS = {
    "migan-256": Script(_case("MI-GAN 256"), _migan(256)),
    "migan-512": Script(_case("MI-GAN 512"), _migan(512)),
    "deepfillv2": Script(_case("DeepFillv2 256"), _deepfill),
    "deepfillv2-tf": Script(_case("DeepFillv2 256", layout="networks_tf"), _deepfill),
}


def write_weights(case: Case, path: Path) -> None:
    """Save random weights as the projects publish theirs."""
    state = build_net(case).state_dict()
    for name, tensor in state.items():
        if name.endswith("fuse_weight"):
            tensor.copy_(torch.eye(3))  # a constant of the public code
    torch.save({"G": state} if case.family == "deepfillv2" else state, path)


def public_fills(script: Script, checkout: Path, paths: Paths) -> Fills:
    """Run the script on the pictures and read its fills."""
    for folder in (paths.photos, paths.masks, paths.fills):
        folder.mkdir(exist_ok=True)
    for number, (photo, mask) in enumerate(pictures(script.case.side[0])):
        Image.fromarray(photo).save(paths.photos / f"{number}.png")
        Image.fromarray(mask).save(paths.masks / f"{number}.png")
    for command in script.commands(paths):
        subprocess.run([*_PYTHON, *command], cwd=checkout, check=True, timeout=600)
    return [np.asarray(Image.open(paths.fills / name).convert("RGB")) for name in paths.numbers()]


async def served_fills(server: Server, side: int) -> Fills:
    """Request fills of the same pictures."""
    client, found = server.client(), []
    for photo, mask in pictures(side):
        reply = await client.send(request_of(photo, mask))
        found.append(np.asarray(Image.open(io.BytesIO(reply.body)).convert("RGB")))
    client.close()
    return found


def differences(found: Fills, wanted: Fills, side: int) -> dict[str, float]:
    """Return the differences of fills in levels: maximum, quantile 0.999, mean, and the share above 1."""
    inner = [cv2.distanceTransform(mask, cv2.DIST_L2, 5) > FEATHER + 1 for _, mask in pictures(side)]
    parts = [np.abs(a.astype(int) - b)[mask] for a, b, mask in zip(found, wanted, inner, strict=True)]
    levels = np.concatenate(parts)
    figures = {"most": levels.max(), "p99.9": np.quantile(levels, 0.999), "mean": levels.mean()}
    figures["share_above_1"] = (levels > 1).mean()
    return {"values": levels.size, **{name: round(float(figure), 5) for name, figure in figures.items()}}


async def run(options: argparse.Namespace) -> dict[str, Any]:
    """Compare one net's fills."""
    script, folder = SCRIPTS[options.net], options.folder
    side, paths = script.case.side[0], _prepared(options.net, script.case, folder)
    wanted = public_fills(script, options.checkout.resolve(), paths)
    request, found = request_of(*pictures(side)[0]), {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        for exact in (True, False):
            with start_retouch(options.net, folder, Path(scratch), exact=exact) as server:
                engine = (await start(server, request)).headers.get("x-engine")
                how = f"{engine}, {'by default' if exact else 'no promise'}"
                found[how] = differences(await served_fills(server, side), wanted, side)
    return {"net": options.net, "side": side, "by_engine": found}


def _prepared(net: str, case: Case, folder: Path) -> Paths:
    folder.mkdir(parents=True, exist_ok=True)
    weights, models = folder / f"{net}.pth", folder / f"models-{net}"
    if not weights.exists():
        write_weights(case, weights)
    if not models.exists():
        request = ExportRequest((weights,), net, ROOT / "tests/data", output=models)
        print(*export_model(request, print).notes, sep="\n")
    return Paths(weights, *(folder / f"{net}-{kind}" for kind in ("photos", "masks", "fills")))


def main() -> None:
    """Compare, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("net", choices=SCRIPTS, help="the net")
    parser.add_argument("checkout", type=Path, help="checkout of its public repository")
    parser.add_argument("folder", type=Path, help="folder to write to")
    add_output_flags(parser)
    options = parser.parse_args()
    options.folder = options.folder.resolve()
    figures = run_on_uvloop(run(options))
    write_outputs(options, figures, lambda *_: None)
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
