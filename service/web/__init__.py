"""From a socket to a validated order, and from a reply to an HTTP response."""
