"""CUDA without torch, and the engines that use it beside TensorRT."""
