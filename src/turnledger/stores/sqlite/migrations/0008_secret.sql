-- A random secret, made once: servers seal the cursors they hand out with it.
CREATE TABLE secret (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    bits BLOB NOT NULL CHECK (length(bits) = 32)
) STRICT;
INSERT INTO secret (id, bits) VALUES (1, randomblob(32));
