"""Durable storage of results: a local disk or S3."""
