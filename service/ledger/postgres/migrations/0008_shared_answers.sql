-- Whether other requests may have been given the results that a key's unanswered request stored.
ALTER TABLE idempotency ADD COLUMN shared INTEGER NOT NULL DEFAULT 0;
