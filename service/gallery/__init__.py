"""The gallery: which results a client has, their thumbnails, and their deletion. It knows no HTTP."""
