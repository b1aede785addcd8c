"""The routes of stored results: fetched, listed, shown small, deleted."""
