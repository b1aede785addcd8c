"""Loading, converting and interpolating weights."""
