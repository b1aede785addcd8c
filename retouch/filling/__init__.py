"""Pictures and folders of pictures, by a server or in this process."""
