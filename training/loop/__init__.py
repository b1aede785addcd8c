"""The parts of the training loop: runtime, schedule, updates, checkpoints, journal."""
