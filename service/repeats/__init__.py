"""Repeated requests: one answer per idempotency key, one computation for identical inputs."""
