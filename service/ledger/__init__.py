"""Persistent state of requests: an SQLite file that the processes of a host share, or a PostgreSQL database."""
