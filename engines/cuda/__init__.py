"""CUDA through cuda-python, and the engines other than TensorRT that run on it."""
