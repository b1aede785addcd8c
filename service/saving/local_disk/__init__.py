"""The local disk: its effects as a class that tests replace, syncs of whole file systems, and what a failure means."""
