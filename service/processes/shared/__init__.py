"""Messages, slots and the status board, which front ends and engine processes share."""
