"""Model versions from a bucket (`--models-url`): fetched, verified, and served once enough hosts have them."""
