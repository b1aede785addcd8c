"""OpenAI's images API: `/v1/images/edits` and `/v1/images/generations`. `/v1/models` is the server's own list."""
