"""A request for pictures from its admission to its answer, in every protocol."""
