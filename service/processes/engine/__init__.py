"""An engine process: one session for each front end."""
