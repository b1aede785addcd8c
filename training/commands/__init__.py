"""The sub-commands of `python -m training`, one file each."""
