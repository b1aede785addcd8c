"""Who gets in, in which order, and when the refused should return."""
