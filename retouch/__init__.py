"""The `retouch` command; it imports service, engines and export only when a command needs them."""
