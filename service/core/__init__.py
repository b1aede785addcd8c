"""Settings, errors and the types that all rooms share."""
