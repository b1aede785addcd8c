"""Asynchronous requests: kept on disk, run once, polled and cancelled through any process, told of by webhooks."""
