"""A front end's side: the backend that sends its samples to engine processes."""
