"""The front end's side: a backend that sends samples to engine processes."""
