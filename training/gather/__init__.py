"""Collects photographs for training: from folders and git repositories into shards of small JPEG files."""
