-- Numbers of a job's runs whose results other requests may have been given.
ALTER TABLE jobs ADD COLUMN shared_runs TEXT NOT NULL DEFAULT '';
