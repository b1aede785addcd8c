"""Authentication and rate limits, checked before a request's body is read."""
