-- Model versions from a bucket: the versions that each fetching process has, and those that enough processes had.
CREATE TABLE model_followers (
    node TEXT COLLATE "C" PRIMARY KEY,
    versions TEXT NOT NULL
);
CREATE TABLE model_agreed (version TEXT COLLATE "C" PRIMARY KEY);
