"""What a foreign file is held to before a runtime sees it."""
