"""State dicts between file and net: found in a loaded file, brought to plain weights, put together from parts."""
