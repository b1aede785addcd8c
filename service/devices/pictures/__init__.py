"""Pictures on a GPU: JPEGs decoded in its hardware, crops cut out of them, and fills pasted into them."""
