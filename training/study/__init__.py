"""Reruns published training experiments, and prints their figures beside the measured ones."""
