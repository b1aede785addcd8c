"""Reruns training experiments that others published, and prints their figures beside those measured here."""
