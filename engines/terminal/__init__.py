"""The output of both command lines of this project."""
