-- The key of a job's request, by which a repeated request finds the job.
ALTER TABLE jobs ADD COLUMN request_key TEXT COLLATE "C";
CREATE UNIQUE INDEX jobs_request_key ON jobs (request_key);
