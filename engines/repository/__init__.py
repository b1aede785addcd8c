"""The model repository: the versions that exist, and those that are loaded."""
