"""Reruns the training experiments of the sources, and prints their figures beside those found here."""
