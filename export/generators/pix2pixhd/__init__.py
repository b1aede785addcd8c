"""pix2pixHD."""
