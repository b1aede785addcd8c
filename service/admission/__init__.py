"""Admission control: which requests enter, in which order, and when refused clients should retry."""
