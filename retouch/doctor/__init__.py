"""The checks of `retouch doctor`."""
