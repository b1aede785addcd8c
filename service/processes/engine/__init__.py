"""The engine process: it computes batches for all front ends, and has a session for each."""
