"""The running server; docs/architecture.md follows a request through it."""
