"""Results on their way from memory to where they last."""
