"""Texture copied into a fill from the known part of its picture: docs/adr/0058-copied-texture.md."""
