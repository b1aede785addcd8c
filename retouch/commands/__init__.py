"""The sub-commands of `retouch`, one file each."""
