"""Lifecycle of the process: background tasks, draining, health, and its use of the host."""
