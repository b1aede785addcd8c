"""Image files: decoding to pixels, and encoding."""
