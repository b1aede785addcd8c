"""Partial convolution."""
