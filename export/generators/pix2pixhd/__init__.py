"""The pix2pixHD family."""
