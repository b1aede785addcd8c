-- The runs of a job whose results other requests may have been given.
ALTER TABLE jobs ADD COLUMN shared_runs TEXT NOT NULL DEFAULT '';
