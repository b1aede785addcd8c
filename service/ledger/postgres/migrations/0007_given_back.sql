-- The runs of a job that ended in order, with their process.
ALTER TABLE jobs ADD COLUMN given_back INTEGER NOT NULL DEFAULT 0;
