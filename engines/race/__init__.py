"""A race of engines on this host: which runs a model fastest, measured side by side and remembered."""
