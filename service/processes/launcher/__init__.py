"""The launcher: starts, restarts and ends the server's processes."""
