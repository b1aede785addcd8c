"""The runtimes behind one interface, and the model repository that the service reads.

Nothing here knows HTTP, images or checkpoints: a model is a manifest and an ONNX graph (docs/architecture.md).
"""
