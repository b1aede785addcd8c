"""What both command lines of this project print with."""
