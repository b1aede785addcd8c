"""The HTTP client of a running server."""
