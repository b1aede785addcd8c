"""PyTriton: encoded pictures as BYTES tensors; Triton's dynamic batcher forms the batches."""

from __future__ import annotations

import numpy as np
import work
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

_model = work.load()


@batch
def infer(image: np.ndarray, mask: np.ndarray | None = None) -> list[np.ndarray]:
    """Map N×1 encoded files to N×1 encoded files."""
    masks = [None] * len(image) if mask is None else [row[0] for row in mask]
    decoded = [work.decode(row[0], hole) for row, hole in zip(image, masks, strict=True)]
    filled = _model([picture for picture, _ in decoded], [hole for _, hole in decoded])
    return [np.array([[work.encode(picture)] for picture in filled], dtype=object)]


if __name__ == "__main__":
    config = TritonConfig(http_port=work.port(), http_address="127.0.0.1", allow_grpc=False, allow_metrics=False)
    names = ["image"] if work.model_name() == "tiny" else ["image", "mask"]
    with Triton(config=config) as triton:
        triton.bind(
            model_name="inpaint",
            infer_func=infer,
            inputs=[Tensor(name=name, dtype=bytes, shape=(1,)) for name in names],
            outputs=[Tensor(name="output", dtype=bytes, shape=(1,))],
            config=ModelConfig(max_batch_size=work.MAX_BATCH, batcher=DynamicBatcher()),
        )
        triton.serve()
