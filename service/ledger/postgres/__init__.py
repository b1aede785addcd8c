"""The ledger as a PostgreSQL database that many hosts share; needs the extra `postgres` (psycopg 3)."""
