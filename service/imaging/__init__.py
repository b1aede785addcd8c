"""Pictures to tiles and back. Pure."""
