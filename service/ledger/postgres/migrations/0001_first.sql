-- Times are seconds since the epoch on the database's clock. Ids are compared byte by byte, as in SQLite.
CREATE TABLE jobs (
    id TEXT COLLATE "C" PRIMARY KEY,
    status TEXT NOT NULL,
    owner TEXT COLLATE "C" NOT NULL,
    attempts INTEGER NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    finished_at DOUBLE PRECISION,
    facts TEXT NOT NULL,
    results TEXT NOT NULL DEFAULT '[]',
    problem TEXT
);
CREATE INDEX jobs_unfinished ON jobs (owner, created_at) WHERE finished_at IS NULL;
CREATE INDEX jobs_finished ON jobs (finished_at) WHERE finished_at IS NOT NULL;

CREATE TABLE deliveries (
    id TEXT COLLATE "C" PRIMARY KEY,
    url TEXT NOT NULL,
    body TEXT NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0,
    next_at DOUBLE PRECISION NOT NULL
);
CREATE INDEX deliveries_due ON deliveries (next_at);
CREATE TABLE webhook_states (
    job_id TEXT COLLATE "C" PRIMARY KEY,
    state TEXT NOT NULL,
    tries INTEGER NOT NULL,
    reason TEXT
);

CREATE TABLE idempotency (
    name TEXT COLLATE "C" PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    owner TEXT NOT NULL,
    done INTEGER NOT NULL DEFAULT 0,
    expires_at DOUBLE PRECISION NOT NULL
);
CREATE INDEX idempotency_expiry ON idempotency (expires_at);
CREATE TABLE idempotency_results (
    result_id TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (result_id, name)
);
CREATE INDEX idempotency_results_name ON idempotency_results (name);

CREATE TABLE known_results (
    fingerprint TEXT COLLATE "C" PRIMARY KEY,
    about TEXT NOT NULL,
    used_at DOUBLE PRECISION NOT NULL
);
CREATE INDEX known_results_use ON known_results (used_at);

CREATE TABLE results (
    id TEXT COLLATE "C" PRIMARY KEY,
    owner TEXT COLLATE "C" NOT NULL,
    created_at DOUBLE PRECISION NOT NULL DEFAULT 0,
    model TEXT COLLATE "C" NOT NULL DEFAULT '',
    facts TEXT NOT NULL DEFAULT '{}',
    saved INTEGER NOT NULL DEFAULT 0,
    deleted_at DOUBLE PRECISION,
    removals INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX results_of_owner ON results (owner, created_at, id) WHERE deleted_at IS NULL;
CREATE INDEX results_in_spool ON results (owner, created_at, id) WHERE deleted_at IS NULL AND saved = 0;
CREATE INDEX results_to_remove ON results (deleted_at) WHERE deleted_at IS NOT NULL AND removals < 2;
CREATE TABLE results_read_in (done INTEGER PRIMARY KEY);

-- Processes with the times of their last heartbeats (node.py).
CREATE TABLE nodes (
    id TEXT COLLATE "C" PRIMARY KEY,
    seen_at TIMESTAMPTZ NOT NULL
);

-- Rate limits and quotas of API keys, from which processes take blocks of tokens and requests.
CREATE TABLE key_usage (
    key_id TEXT COLLATE "C" PRIMARY KEY,
    tokens DOUBLE PRECISION NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    day INTEGER NOT NULL,
    requests BIGINT NOT NULL
);
