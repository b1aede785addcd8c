"""From trained weights to a model in the repository whose card says what it is, what it can do and what it cannot."""
