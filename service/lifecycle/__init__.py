"""How the process lives and ends: background tasks, draining, health, what it may use of the host."""
