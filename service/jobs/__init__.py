"""Asynchronous requests: stored on disk, polled and cancelled through any process, announced by webhooks."""
