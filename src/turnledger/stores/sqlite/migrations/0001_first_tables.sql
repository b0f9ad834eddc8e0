-- The first tables, described in schema.sql.

CREATE TABLE conversation (
    ref INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    branch BLOB NOT NULL,
    conversation_key TEXT,
    state TEXT NOT NULL,
    internal INTEGER NOT NULL,
    title TEXT,
    metadata TEXT,
    revision INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    touched_at INTEGER NOT NULL,
    expires_after INTEGER,
    swept INTEGER NOT NULL DEFAULT 0,
    reset_policy BLOB,
    former_conversation_key TEXT,
    switches BLOB
) STRICT;

CREATE UNIQUE INDEX conversation_by_key ON conversation (owner, conversation_key)
    WHERE conversation_key IS NOT NULL;

CREATE INDEX conversation_listed ON conversation (owner, touched_at DESC, id DESC)
    WHERE state = 'live' AND internal = 0;

CREATE INDEX conversation_lapsing ON conversation (touched_at + expires_after)
    WHERE state = 'live' AND expires_after IS NOT NULL;

CREATE INDEX conversation_unswept ON conversation (ref)
    WHERE state <> 'live' AND swept = 0;

CREATE TABLE branch (
    ref INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    conversation BLOB NOT NULL,
    fence INTEGER NOT NULL,
    head BLOB,
    length INTEGER NOT NULL,
    running BLOB,
    unsettled BLOB,
    pending BLOB,
    start INTEGER NOT NULL DEFAULT 0,
    settled INTEGER NOT NULL DEFAULT 0,
    last_ticket INTEGER NOT NULL DEFAULT 0,
    cleared INTEGER NOT NULL DEFAULT 0,
    instructed INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX branch_of_conversation ON branch (conversation);

CREATE TABLE origin (
    branch INTEGER PRIMARY KEY,
    conversation BLOB NOT NULL,
    base BLOB,
    source INTEGER,
    through INTEGER NOT NULL,
    line BLOB
) STRICT;

CREATE INDEX origin_of_base ON origin (conversation, base);
CREATE INDEX origin_of_source ON origin (source);

CREATE TABLE turn (
    ref INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    branch INTEGER NOT NULL,
    number INTEGER NOT NULL,
    parent BLOB,
    kind INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    committed_at INTEGER NOT NULL,
    body BLOB NOT NULL,
    log BLOB,
    UNIQUE (branch, number)
) STRICT;

CREATE INDEX turn_settled ON turn (branch, number) WHERE kind = 2;

CREATE TABLE item_flag (
    turn BLOB NOT NULL,
    place INTEGER NOT NULL,
    owner TEXT NOT NULL,
    to_model INTEGER NOT NULL,
    to_user INTEGER NOT NULL,
    branch INTEGER,
    number INTEGER,
    PRIMARY KEY (turn, place)
) STRICT, WITHOUT ROWID;

CREATE INDEX item_flag_in_line ON item_flag (branch, number);

CREATE TABLE flag_version (
    owner TEXT PRIMARY KEY,
    version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE attempt (
    ended INTEGER NOT NULL,
    id BLOB NOT NULL,
    owner TEXT NOT NULL,
    conversation BLOB NOT NULL,
    branch BLOB NOT NULL,
    lease BLOB NOT NULL,
    fence INTEGER NOT NULL,
    state TEXT NOT NULL,
    base BLOB,
    fork BLOB,
    input BLOB,
    on_stop TEXT NOT NULL,
    on_failure TEXT NOT NULL,
    idempotency_key TEXT,
    stop TEXT,
    failure_code TEXT,
    failure_message TEXT,
    partial TEXT,
    journaled INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    ended_at INTEGER,
    interaction INTEGER NOT NULL DEFAULT 1,
    PRIMARY KEY (ended, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX attempt_of_conversation ON attempt (conversation, id) WHERE ended = 1;
CREATE INDEX attempt_by_end ON attempt (ended_at) WHERE ended = 1;

CREATE TABLE attempt_input (
    ref INTEGER PRIMARY KEY,
    attempt BLOB NOT NULL UNIQUE,
    body BLOB NOT NULL
) STRICT;

CREATE TABLE journal (
    attempt BLOB NOT NULL,
    number INTEGER NOT NULL,
    record BLOB NOT NULL,
    PRIMARY KEY (attempt, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE event_log (
    attempt BLOB NOT NULL,
    number INTEGER NOT NULL,
    chunk BLOB NOT NULL,
    PRIMARY KEY (attempt, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE ticket (
    attempt BLOB PRIMARY KEY,
    conversation BLOB NOT NULL,
    branch BLOB NOT NULL,
    number INTEGER NOT NULL,
    front INTEGER NOT NULL,
    lease BLOB NOT NULL,
    deadline INTEGER NOT NULL,
    idempotency_key TEXT,
    fingerprint BLOB NOT NULL,
    claimed BLOB
) STRICT, WITHOUT ROWID;

CREATE INDEX ticket_of_branch ON ticket (branch, front DESC, number);
CREATE INDEX ticket_of_lease ON ticket (lease);

CREATE TABLE claim (
    owner TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    conversation BLOB NOT NULL,
    attempt BLOB NOT NULL,
    expires_at INTEGER,
    retries INTEGER,
    lost INTEGER NOT NULL,
    sender BLOB,
    PRIMARY KEY (owner, idempotency_key)
) STRICT, WITHOUT ROWID;

CREATE INDEX claim_expiring ON claim (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE lease (
    id BLOB PRIMARY KEY,
    beat INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
