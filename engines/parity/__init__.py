"""Whether an engine computes what the reference computes."""
