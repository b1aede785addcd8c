"""IOPaint's own command, started where torch is the build for CPUs.

    python iopaint_server.py start --model lama --model-dir DIR

IOPaint imports torchvision with its plugins, though its erasing models use none of it. PyPI's torchvision is built for
CUDA, and beside a torch without CUDA its import ends because its operators are not there. Their names are declared
here, so that the import succeeds; nothing calls them. Beside torch for CUDA this file changes nothing.
"""

import torch
from iopaint import entry_point

if __name__ == "__main__":
    if torch.version.cuda is None:
        for operator in ("nms", "qnms"):
            torch.library.define(f"torchvision::{operator}", "(Tensor a, Tensor b, float c) -> Tensor")
    entry_point()
