"""The same request twice: one answer for one key, one computation for identical inputs."""
