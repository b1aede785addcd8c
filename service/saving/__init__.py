"""Saving of results: from memory through the spool to durable storage."""
