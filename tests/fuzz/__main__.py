"""Fuzzes the readers of untrusted input: `make fuzz`, or `python -m tests.fuzz decoders|forms -max_total_time=600`.

The flags are libFuzzer's. Findings are written to the working directory (crash-…, timeout-…, oom-…); each becomes a
test with its fix.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["service", "multipart"]):
    from tests.fuzz import decoders, forms

TARGETS = {"decoders": decoders, "forms": forms}


def mutate(data: bytes, max_size: int, seed: int) -> bytes:
    """Mutate with libFuzzer; three times in four, restore a PNG's checksums."""
    mutated = atheris.Mutate(data, max_size)
    return decoders.with_right_sums(mutated)[:max_size] if seed % 4 else mutated


def main() -> None:
    """Run until the time is up or something is found."""
    target = TARGETS[sys.argv.pop(1)]
    logging.disable()  # the parser logs what is wrong with each body
    with tempfile.TemporaryDirectory() as folder:
        for number, seed in enumerate(target.seeds()):
            Path(folder, f"seed-{number}").write_bytes(seed)
        limits = ["-timeout=10", "-rss_limit_mb=2048", "-max_len=65536", "-print_final_stats=1"]
        atheris.Setup([sys.argv[0], folder, *limits, *sys.argv[1:]], target.survive, custom_mutator=mutate)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
