"""Arguments of the programs that measure the fills of one model."""

from __future__ import annotations

import argparse
from pathlib import Path


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the model, its photographs, LPIPS's features and the engine's options."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="folder of the model version")
    parser.add_argument("folder", type=Path, help="folder of photographs")
    parser.add_argument(
        "--lpips-features", type=Path, required=True, help="AlexNet's features (safetensors), for LPIPS"
    )
    parser.add_argument("--threads", type=int, default=0, help="CPU threads of the engine")
    parser.add_argument("--cache-dir", type=Path, default=Path("cache"), help="folder for compiled engines")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    return parser
