"""The client of a running server."""
