"""The `retouch` command: composes service, engines and export, and imports them only when they are needed."""
