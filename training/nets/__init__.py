"""The generators in the form in which they are trained."""
