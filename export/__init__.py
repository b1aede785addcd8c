"""Exports checkpoints to ONNX models; every step is verified before anything is published (docs/architecture.md)."""
