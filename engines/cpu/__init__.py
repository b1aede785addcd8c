"""The engines for a CPU."""
