"""State beyond the ledger that hosts share through PostgreSQL and a bucket: files, and the use of API keys."""
