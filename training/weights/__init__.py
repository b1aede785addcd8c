"""Weights that are taken from files or mixed."""
