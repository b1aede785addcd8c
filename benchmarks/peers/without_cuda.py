"""Runs a module that imports torchvision with the CPU build of torch; modules of the current folder come first.

    python without_cuda.py iopaint start --model lama --model-dir DIR

PyPI's torchvision is built for CUDA; with a CPU build of torch its import fails, because its operators are missing.
This file declares their names, so that the import succeeds; the parts of torchvision that IOPaint's erasing models and
the public scripts use call none of them. With a CUDA build of torch this file changes nothing.
"""

import runpy
import sys
from pathlib import Path

import torch

if __name__ == "__main__":
    if torch.version.cuda is None:
        for operator in ("nms", "qnms"):
            torch.library.define(f"torchvision::{operator}", "(Tensor a, Tensor b, float c) -> Tensor")
    sys.path[0] = str(Path.cwd())  # in place of this file's folder
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
