"""A run: its steps, checkpoints, schedule, journal."""
