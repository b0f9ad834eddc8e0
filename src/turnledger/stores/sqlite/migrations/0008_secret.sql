-- What nobody outside knows, made once: by it, servers seal what they hand out and take back.
CREATE TABLE secret (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    bits BLOB NOT NULL CHECK (length(bits) = 32)
) STRICT;
INSERT INTO secret (id, bits) VALUES (1, randomblob(32));
