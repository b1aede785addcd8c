"""Published models: where they are, under which terms, and how each becomes a served one."""
