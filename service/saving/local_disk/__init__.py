"""The local disk: its operations as a class that tests replace, syncs of whole file systems, and failure detection."""
