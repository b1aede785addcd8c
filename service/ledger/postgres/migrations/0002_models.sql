-- Model versions from a bucket: which processes that fetch them have which, and those that enough of them had.
CREATE TABLE model_followers (
    node TEXT COLLATE "C" PRIMARY KEY,
    versions TEXT NOT NULL
);
CREATE TABLE model_agreed (version TEXT COLLATE "C" PRIMARY KEY);
