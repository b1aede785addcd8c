"""Encoded files to pixels and back."""
