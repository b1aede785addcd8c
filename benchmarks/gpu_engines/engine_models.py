"""The models that compare.py measures: generators at their public widths with random weights.

    python -m benchmarks.gpu_engines.engine_models NAME FOLDER [--no-reference]

Needs torch and onnx. Each model has its FP16 graph, its program.pt2, and reference.npz: the outputs of the public net
in FP32 for the engines' probes.
"""

from __future__ import annotations

import argparse
import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.gpu_engines.family_cases import CASES, Case, build_net
from engines.manifest import MANIFEST_FILE, ONNX_FILE, Manifest, MultipleSize, Parity
from engines.parity.probes import probe_feeds
from export.generators import FAMILIES
from export.lowering import to_half
from export.onnx_graph import write_graph
from export.program import PROGRAM_FILE, write_program

REFERENCE_FILE = "reference.npz"
SMALL = "small"
HEAVY = "resnet_heavy"
_FOUR = {
    "unet_256": CASES[0],
    "resnet_9blocks": CASES[1],
    "pconv_256": CASES[2],
    "pconv_512": CASES[3],
}
_PUBLIC = (
    "big-lama 256",
    "big-lama 512",
    "big-lama 1024",
    "MI-GAN 256",
    "MI-GAN 512",
    "DeepFillv2 256",
    "DeepFillv2 512",
)
MODELS: dict[str, Case] = {
    **_FOUR,
    **{case.name.lower().replace("-", "_").replace(" ", "_"): case for case in CASES if case.name in _PUBLIC},
    SMALL: replace(CASES[2], options={"levels": 3, "width": 16}),
    HEAVY: replace(CASES[1], options={**CASES[1].options, "ngf": 128}, side=(768, 768)),
    f"{HEAVY}_512": replace(CASES[1], options={**CASES[1].options, "ngf": 128}, side=(512, 512)),
}
"""The nets of the reference figures (engine_table.py), published inpainting nets, a small net of several tile sizes for
checks other than speed, and one so heavy (4.1 TFLOP per picture of 768², 1.8 of 512²) that the GPU is the bottleneck on
a host that decodes and encodes 130 or 290 pictures per second for each GPU."""


def publish(name: str, folder: Path, *, reference: bool = True) -> Path:
    """Write models/NAME/1 into a folder and return it; the reference outputs take a while on a CPU."""
    torch.set_grad_enabled(False)
    case = MODELS[name]
    family, net, interface = FAMILIES[case.family], build_net(case), case.interface
    if name == SMALL:
        interface = replace(interface, size=MultipleSize(multiple_of=8, sides=(64, 128)))
    lowered = family.lower(net, case.parsed)
    directory = folder / name / "1"
    directory.mkdir(parents=True)
    write_graph(to_half(lowered), interface, directory / ONNX_FILE)
    write_program(family.lower_for_program(net, case.parsed), interface, "fp16", directory / PROGRAM_FILE)
    manifest = Manifest(
        name=name,
        version=1,
        task=interface.task,
        generator=case.family,
        inputs=interface.inputs,
        output=interface.output,
        size=interface.size,
        max_batch=32,
        precision="fp16",
        opset=17,
        onnx_sha256=hashlib.sha256((directory / ONNX_FILE).read_bytes()).hexdigest(),
        checkpoint_sha256="0" * 64,
        licence="none",
        training_data="none: random weights",
        parity=Parity(bar_db=family.bars(case.parsed).fp16_psnr_db, cases=()),
    )
    if reference:
        public = family.wrap(net, case.parsed).eval()
        wanted = {
            probe: public(*(torch.from_numpy(array) for array in feed.values())).numpy()
            for probe, feed in probe_feeds(manifest)
        }
        np.savez(directory / REFERENCE_FILE, **wanted)
    (directory / MANIFEST_FILE).write_text(manifest.model_dump_json(indent=1))
    return directory


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="name of the model to write")
    parser.add_argument("folder", type=Path, help="model repository to write it into")
    parser.add_argument("--no-reference", action="store_true", help="leave out the public net's outputs")
    arguments = parser.parse_args()
    print(publish(arguments.name, arguments.folder, reference=not arguments.no_reference))
