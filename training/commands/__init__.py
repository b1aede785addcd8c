"""One file for each sub-command of `python -m training`."""
