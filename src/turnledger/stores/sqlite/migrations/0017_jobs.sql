-- Requests of durable turns that wait or run.
CREATE TABLE job (
    id BLOB PRIMARY KEY,
    owner TEXT NOT NULL,
    conversation BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    resumes INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX job_of_owner ON job (owner, id);
