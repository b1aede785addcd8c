"""Photographs and holes, as a run takes them."""
