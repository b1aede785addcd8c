"""The threads that decode, prepare, finish and encode."""
