"""Webhook delivery: choice of the next messages, and the HTTP client that sends them."""
