"""Settings, errors and the types that all packages share."""
