"""Checkpoint to generator to ONNX, each step verified before anything is published (docs/architecture.md)."""
