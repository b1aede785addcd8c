"""Mixed-precision training and evaluation of the generators that Retouch serves; not part of the service."""
