"""The flags --json and --plot of a benchmark, and the writing of these files."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def add_output_flags(parser: argparse.ArgumentParser) -> None:
    """Add --json and --plot."""
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--plot", type=Path, help="plot them to this file, as PNG")


def write_outputs(options: argparse.Namespace, figures: Any, draw: Callable[[Any, Path], None]) -> None:
    """Write the files that the flags ask for."""
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2))
    if options.plot:
        draw(figures, options.plot)
