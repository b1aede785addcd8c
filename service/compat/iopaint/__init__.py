"""IOPaint's API (`/api/v1`), as its page and its other clients call it."""
