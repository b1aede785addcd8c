"""The parity gate of engines that compute otherwise than the reference: measured once, remembered by fingerprint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from engines.base import Engine, Feed
from engines.errors import ParityTooLow
from engines.onnxrt import OnnxRuntimeEngine
from engines.parity.comparison import compare
from engines.parity.decisions import Decision, DecisionCache, fingerprint
from engines.parity.probes import lone_probe_feeds, outermost_tiles, probe_feeds

_VERDICTS_FORMAT = 2
"""Counted up when the probes or the rule change, so that older verdicts are not believed."""


def require_parity(
    engine: Engine, directory: Path, facts: Mapping[str, object], verdicts: DecisionCache, max_batch: int
) -> str:
    """Compare an engine with ONNX Runtime on the probes; returns the verdict in words.

    For engines on a GPU, which compute a lone row and a batch, a small and a large tile, by kernels of their own each.

    Args:
        engine: ready to infer.
        directory: of its model, for the reference.
        facts: everything that its outputs depend on; a verdict for the same facts is believed.
        verdicts: where verdicts are remembered.
        max_batch: the largest batch that the engine takes.

    Raises:
        ParityTooLow: the outputs are under the manifest's bar or not finite.
    """
    manifest = engine.manifest
    bar_db = manifest.parity.bar_db
    tiles = outermost_tiles(manifest)
    key = fingerprint({**facts, "bar_db": bar_db, "what": "parity", "format": _VERDICTS_FORMAT, "tiles": tiles})
    if (known := verdicts.get(key)) is not None:
        return known.why
    reference = OnnxRuntimeEngine(directory, manifest)
    probes = [(name, _first(feed, max_batch)) for name, feed in probe_feeds(manifest)]
    probes += lone_probe_feeds(manifest, tiles if max_batch > 1 else tiles[1:])  # else the first were lone ones, too
    verdict = compare(lambda f: reference.infer(f)["output"], lambda f: engine.infer(f)["output"], probes)
    reference.close()
    why = f"{engine.precision} against onnxrt on the CPU: {verdict}, the bar is {bar_db:g} dB"
    if not verdict.passes(bar_db):
        raise ParityTooLow(f"{manifest.key} on {engine.name}: {why}")
    verdicts.put(key, Decision(precision=engine.precision, why=why))
    return why


def _first(feed: Feed, samples: int) -> Feed:
    return {name: np.ascontiguousarray(array[:samples]) for name, array in feed.items()}
