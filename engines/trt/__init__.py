"""Building and running plans with TensorRT and TensorRT-RTX."""
