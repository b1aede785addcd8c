"""Fills pictures and folders of pictures, on a server or in this process."""
