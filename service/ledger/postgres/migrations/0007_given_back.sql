-- Number of a job's runs that ended because their process ended cleanly.
ALTER TABLE jobs ADD COLUMN given_back INTEGER NOT NULL DEFAULT 0;
