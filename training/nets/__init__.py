"""Generators as they are trained."""
