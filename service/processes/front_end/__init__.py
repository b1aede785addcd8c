"""The front end's side of the processes: a backend that sends samples to engine processes."""
