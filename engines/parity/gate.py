"""The parity gate of the GPU engines: compares each with ONNX Runtime once and stores the result by fingerprint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from engines.base import Engine, Feed
from engines.errors import ParityTooLow
from engines.files.record_cache import fingerprint
from engines.onnxrt import OnnxRuntimeEngine
from engines.parity.comparison import compare
from engines.parity.decisions import Decision, DecisionCache
from engines.parity.probes import probe_feeds, single_row_probe_feeds, smallest_and_largest_tiles

_VERDICTS_FORMAT = 2
"""The format of stored results; increased when the probes or the rule change, which discards older ones."""


def require_parity(
    engine: Engine, directory: Path, facts: Mapping[str, object], verdicts: DecisionCache, max_batch: int
) -> str:
    """Compare an engine with ONNX Runtime on the probes; returns the result in words.

    GPU engines use different kernels for single rows and batches, and for small and large tiles; all are compared.

    Args:
        engine: an engine that is ready to infer.
        directory: the model's version directory, from which the reference is loaded.
        facts: everything that the engine's outputs depend on; a stored result for the same facts is reused.
        verdicts: the cache of results.
        max_batch: the largest batch that the engine takes.

    Raises:
        ParityTooLow: the outputs are under the manifest's bar or not finite.
    """
    manifest = engine.manifest
    bar_db = manifest.parity.bar_db
    tiles = smallest_and_largest_tiles(manifest)
    key = fingerprint({**facts, "bar_db": bar_db, "what": "parity", "format": _VERDICTS_FORMAT, "tiles": tiles})
    if (known := verdicts.get(key)) is not None:
        return known.why
    reference = OnnxRuntimeEngine(directory, manifest)
    probes = [(name, _first_samples(feed, max_batch)) for name, feed in probe_feeds(manifest)]
    # with a largest batch of 1, the probes above already are single rows of the smallest tile
    probes += single_row_probe_feeds(manifest, tiles if max_batch > 1 else tiles[1:])
    verdict = compare(lambda f: reference.infer(f)["output"], lambda f: engine.infer(f)["output"], probes)
    reference.close()
    why = f"{engine.precision} against onnxrt on the CPU: {verdict}, the bar is {bar_db:g} dB"
    if not verdict.passes(bar_db):
        raise ParityTooLow(f"{manifest.key} on {engine.name}: {why}")
    verdicts.put(key, Decision(precision=engine.precision, why=why))
    return why


def _first_samples(feed: Feed, samples: int) -> Feed:
    return {name: np.ascontiguousarray(array[:samples]) for name, array in feed.items()}
