"""DeepFillv2."""
