ALTER TABLE token ADD COLUMN conversation BLOB;
ALTER TABLE token ADD COLUMN share BLOB;

-- Share links. Of the code of a link only the digest is stored.
CREATE TABLE share (
    id BLOB PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,    -- SHA-256
    owner TEXT NOT NULL,            -- its creator
    name TEXT NOT NULL,
    chat_scope TEXT NOT NULL,
    conversation BLOB,              -- the one chat it shows; NULL: the whole scope
    models TEXT,                    -- a JSON list; NULL for all
    max_uses INTEGER,
    uses INTEGER NOT NULL DEFAULT 0,
    per_minute INTEGER,
    visitor_lifetime INTEGER,       -- milliseconds that a visitor's token is valid
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    parent BLOB                     -- the token that created it; NULL for none
) STRICT, WITHOUT ROWID;

CREATE INDEX share_of_owner ON share (owner, id);
CREATE INDEX share_made_by ON share (parent) WHERE parent IS NOT NULL;
CREATE INDEX share_ended ON share (min(coalesce(revoked_at, expires_at), coalesce(expires_at, revoked_at)))
    WHERE revoked_at IS NOT NULL OR expires_at IS NOT NULL;
CREATE INDEX token_of_share ON token (share, created_at) WHERE share IS NOT NULL;
