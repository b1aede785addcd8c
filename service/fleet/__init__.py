"""State beyond the ledger that hosts share through PostgreSQL and a bucket: files, and the usage of API keys."""
