"""Checks of a foreign file before a runtime sees it."""
