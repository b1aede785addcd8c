"""What `retouch doctor` finds out."""
