"""A request for pictures from its admission to its answer, whatever the protocol that it came by."""
