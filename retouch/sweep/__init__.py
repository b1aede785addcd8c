"""What `auto` is to do for a model: ways to fill, measured on a folder of pictures."""
