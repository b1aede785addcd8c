"""Starts, restarts and ends the processes."""
