"""The losses that generators are trained with."""
