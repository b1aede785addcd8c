"""Mixed-precision training of the generators that Retouch serves, and their evaluation; no part of the service."""
