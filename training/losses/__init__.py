"""What a generator is judged by."""
