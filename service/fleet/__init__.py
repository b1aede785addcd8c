"""What hosts that share a PostgreSQL ledger share beyond it: files in a bucket, and the use of API keys."""
