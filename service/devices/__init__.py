"""Devices that compute a batch: a CPU, a CPU in lanes, an NVIDIA GPU."""
