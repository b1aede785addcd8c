"""The model repository: which versions there are, which are loaded."""
