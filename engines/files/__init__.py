"""Atomic writes, and reads of untrusted files that never block."""
