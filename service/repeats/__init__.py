"""Repeated requests: one answer for one key, one computation for identical inputs."""
