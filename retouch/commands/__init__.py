"""One file for each sub-command."""
