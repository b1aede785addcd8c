"""The routes of stored results: fetching, listing, thumbnails and deletion."""
