"""HTTP/1.1 on one connection: where messages end, and the limits of clients."""
