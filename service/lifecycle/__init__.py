"""Lifecycle of the process: background tasks, draining, health, and use of the host's resources."""
