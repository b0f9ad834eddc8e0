-- A row per owner for everything that begin reads of one, and tokens.

CREATE TABLE owner (
    owner TEXT PRIMARY KEY,
    flag_version INTEGER NOT NULL DEFAULT 0,
    admission INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

INSERT INTO owner (owner, flag_version) SELECT owner, version FROM flag_version;

DROP TABLE flag_version;

CREATE TABLE token (
    id BLOB PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    name TEXT NOT NULL,
    scopes TEXT NOT NULL,
    chat_scope TEXT NOT NULL,
    models TEXT,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    used_at INTEGER,
    parent BLOB
) STRICT, WITHOUT ROWID;

CREATE INDEX token_of_owner ON token (owner, id);
CREATE INDEX token_of_parent ON token (parent) WHERE parent IS NOT NULL;

CREATE INDEX token_by_end ON token (min(coalesce(revoked_at, expires_at), coalesce(expires_at, revoked_at)))
    WHERE revoked_at IS NOT NULL OR expires_at IS NOT NULL;
