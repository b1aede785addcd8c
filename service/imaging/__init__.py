"""Image processing: pictures to model tiles and back. Pure."""
