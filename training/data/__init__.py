"""Training pictures and holes."""
