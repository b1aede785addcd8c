-- The time since which this ledger has recorded its servers' jobs: older stored requests may belong to another ledger.
CREATE TABLE jobs_since (one INTEGER PRIMARY KEY, moment DOUBLE PRECISION NOT NULL);
