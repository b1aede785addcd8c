"""The engine process: it computes for all front ends, with a session for each."""
