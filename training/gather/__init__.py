"""Photographs for training: from folders and git repositories to shards of small JPEG files."""
