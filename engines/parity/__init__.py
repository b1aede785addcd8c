"""The parity gate: whether an engine computes what the reference computes."""
