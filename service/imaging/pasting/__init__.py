"""The areas where fills are pasted into a picture, the seam around them, and the pasting itself."""
