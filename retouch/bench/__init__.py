"""`retouch bench`: load for a running server, and an honest report of how it was answered."""
