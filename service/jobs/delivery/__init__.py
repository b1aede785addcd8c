"""Delivery of the messages that jobs have ended: which are next, and how one is sent."""
