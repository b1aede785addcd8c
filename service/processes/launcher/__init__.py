"""The launcher: starts, restarts and ends the processes."""
