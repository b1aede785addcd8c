-- The key of a job's request: who sends the request again finds the job.
ALTER TABLE jobs ADD COLUMN request_key TEXT COLLATE "C";
CREATE UNIQUE INDEX jobs_request_key ON jobs (request_key);
