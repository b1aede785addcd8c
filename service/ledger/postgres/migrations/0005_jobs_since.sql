-- The moment since which this ledger has the jobs of its servers: requests that are older may be another's.
CREATE TABLE jobs_since (one INTEGER PRIMARY KEY, moment DOUBLE PRECISION NOT NULL);
