"""Keeps a GPU busy with matrix products, as an engine does, while something else is measured."""

from __future__ import annotations

import threading
import time


class MatrixProducts:
    """Keeps the GPU busy with matrix products from a thread, and counts them."""

    def __init__(self) -> None:
        import torch  # noqa: PLC0415 -- the rest of the benchmark needs no torch

        self._torch, self.done, self._stop = torch, 0, threading.Event()
        self._a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        with self._torch.cuda.stream(self._torch.cuda.Stream()):
            while not self._stop.is_set():
                for _ in range(20):
                    self._torch.mm(self._a, self._a)
                self._torch.cuda.current_stream().synchronize()
                self.done += 20

    def __enter__(self) -> MatrixProducts:
        self._thread.start()
        time.sleep(0.3)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
