"""Files that are there whole or not at all, and files of others that are read without waiting."""
