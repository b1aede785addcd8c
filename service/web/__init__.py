"""HTTP: converts requests to validated orders, and results to responses."""
