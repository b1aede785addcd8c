"""`retouch bench pipeline`: from a picture's bytes to its result's, without HTTP."""
