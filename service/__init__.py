"""The running server, read top to bottom as the life of a request (docs/architecture.md)."""
