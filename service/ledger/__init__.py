"""Persistent state of requests: one SQLite file, shared by the processes of a host."""
