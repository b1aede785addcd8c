"""The Open Inference Protocol v2 over HTTP, with Triton's extension for binary tensors."""
