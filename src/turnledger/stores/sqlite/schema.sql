-- The current tables of a Turnledger store in SQLite; new stores are created with this file. The files in migrations/
-- lead older ones here step by step; a test proves both equal.
--
-- Ids are 16 bytes, times are milliseconds since 1970. Lasting rows (conversations, branches, turns) are in rowid tables,
-- which pack long rows tightly. Rows that come and go with each turn (attempts, journals, tickets, claims, leases) are in
-- WITHOUT ROWID tables: one page less to write, and to free.

-- A chat, as its user sees it.
CREATE TABLE conversation (
    ref INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    branch BLOB NOT NULL,           -- the current one
    conversation_key TEXT,          -- NULL: none, or freed by a deletion or reset
    state TEXT NOT NULL,            -- live, deleted, purged, expired
    internal INTEGER NOT NULL,
    title TEXT,
    metadata TEXT,                  -- a JSON object; NULL when empty
    revision INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    touched_at INTEGER NOT NULL,
    expires_after INTEGER,
    swept INTEGER NOT NULL DEFAULT 0, -- 1 when it has ended and its turns and attempts are removed
    reset_policy BLOB,              -- a JSON document; NULL for never
    former_conversation_key TEXT,   -- the one it had before a reset
    switches BLOB,                  -- the ids of the last few switches between branches; NULL for none
    scope TEXT NOT NULL DEFAULT '', -- of one application; never changes
    tags TEXT,                      -- a JSON list; NULL for none
    pinned INTEGER NOT NULL DEFAULT 0,
    archived INTEGER NOT NULL DEFAULT 0,
    named_by TEXT,                  -- the source of its title: person, words, model; NULL without one
    listed INTEGER NOT NULL DEFAULT 1,      -- 0 if a turn created it, until one is committed
    purge_at INTEGER,               -- when a deleted one is purged
    title_due INTEGER NOT NULL DEFAULT 0,   -- 1 until its current title is indexed
    forgotten BLOB                  -- the effects that an undo was asked to forget; NULL for none
) STRICT;

-- A conversation_key names one conversation of a scope.
CREATE UNIQUE INDEX conversation_by_key ON conversation (owner, scope, conversation_key)
    WHERE conversation_key IS NOT NULL;

-- The list of an owner, last touched first.
CREATE INDEX conversation_listed ON conversation (owner, archived, touched_at DESC, id DESC)
    WHERE state = 'live' AND internal = 0 AND listed = 1;

-- The list of one scope: only conversations with a scope pay for it.
CREATE INDEX conversation_listed_in_scope ON conversation (owner, scope, archived, touched_at DESC, id DESC)
    WHERE state = 'live' AND internal = 0 AND listed = 1 AND scope <> '';

-- Pinned ones, which are few.
CREATE INDEX conversation_pinned ON conversation (owner, touched_at DESC, id DESC)
    WHERE state = 'live' AND pinned = 1;

-- Deleted ones, by owner and by the time of their purge.
CREATE INDEX conversation_deleted ON conversation (owner, touched_at DESC, id DESC)
    WHERE state = 'deleted';
CREATE INDEX conversation_to_purge ON conversation (purge_at)
    WHERE state = 'deleted';

-- Internal ones, for retention.
CREATE INDEX conversation_internal ON conversation (owner, touched_at, id)
    WHERE state = 'live' AND internal = 1;

-- Those without a committed turn.
CREATE INDEX conversation_unlisted ON conversation (touched_at)
    WHERE state = 'live' AND listed = 0;

-- When conversations lapse: only those that can lapse pay for it.
CREATE INDEX conversation_lapsing ON conversation (touched_at + expires_after)
    WHERE state = 'live' AND expires_after IS NOT NULL;

-- Ended conversations with rows to remove.
CREATE INDEX conversation_unswept ON conversation (ref)
    WHERE state IN ('purged', 'expired') AND swept = 0;

-- Titles that are not indexed yet.
CREATE INDEX conversation_title_due ON conversation (ref) WHERE title_due = 1;

-- Conversations by tag.
CREATE TABLE conversation_tag (
    owner TEXT NOT NULL,
    tag TEXT NOT NULL,
    conversation BLOB NOT NULL,
    PRIMARY KEY (owner, tag, conversation)
) STRICT, WITHOUT ROWID;

-- A line of turns, with its lane, its fence and its head.
CREATE TABLE branch (
    ref INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    conversation BLOB NOT NULL,
    fence INTEGER NOT NULL,
    head BLOB,
    length INTEGER NOT NULL,
    running BLOB,
    unsettled BLOB,
    pending BLOB,                   -- a JSON document of items; NULL for none
    start INTEGER NOT NULL DEFAULT 0,       -- its own turns come after this number
    settled INTEGER NOT NULL DEFAULT 0,     -- no turn of kind 2 or 3 on the line comes after this number
    last_ticket INTEGER NOT NULL DEFAULT 0,
    cleared INTEGER NOT NULL DEFAULT 0,     -- 1 when its conversation has ended and its turns are removed
    instructed INTEGER NOT NULL DEFAULT 0,  -- number of the turn whose instructions are in force at the head
    bytes INTEGER NOT NULL DEFAULT 0,       -- of the bodies and logs of its own turns
    preview TEXT NOT NULL DEFAULT '',       -- the beginning of the last text at its head
    used_at INTEGER                 -- of a side branch: its last use; NULL for all others
) STRICT;

CREATE INDEX branch_of_conversation ON branch (conversation);

-- Side branches, for retention.
CREATE INDEX branch_by_use ON branch (used_at) WHERE used_at IS NOT NULL;

-- How branches were made from others; written once.
CREATE TABLE origin (
    branch INTEGER PRIMARY KEY,     -- its ref
    conversation BLOB NOT NULL,
    base BLOB,                      -- the turn it was made from; NULL for the beginning
    source INTEGER,                 -- the ref of the branch of that turn
    through INTEGER NOT NULL,       -- and its number
    line BLOB                       -- the packed stretches before its own turns; NULL for none
) STRICT;

CREATE INDEX origin_of_base ON origin (conversation, base);
CREATE INDEX origin_of_source ON origin (source);

-- The history: rows are inserted and, when their conversation has ended, removed; never updated.
CREATE TABLE turn (
    ref INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    branch INTEGER NOT NULL,        -- its ref
    number INTEGER NOT NULL,
    parent BLOB,                    -- NULL for the previous turn on the same branch, or none
    kind INTEGER NOT NULL,          -- 0 completed, 1 interrupted, 2 settled, 3 interrupted after tools acted
    created_at INTEGER NOT NULL,
    committed_at INTEGER NOT NULL,
    body BLOB NOT NULL,
    log BLOB,                       -- of its events; NULL if the body alone determines them
    checksum INTEGER,               -- CRC-32 of the row, and above it of the log; below 0 with its place; NULL: from an older version
    UNIQUE (branch, number)
) STRICT;

-- Turns with effects, anywhere in a long line: they are carried to branches that leave them out.
CREATE INDEX turn_settled ON turn (branch, number) WHERE kind >= 2;

-- Hidden items. In rows of their own, which no commit writes.
CREATE TABLE item_flag (
    turn BLOB NOT NULL,
    place INTEGER NOT NULL,         -- among the items of the turn, from 0
    owner TEXT NOT NULL,
    to_model INTEGER NOT NULL,
    to_user INTEGER NOT NULL,
    branch INTEGER,                 -- the ref of the turn's branch
    number INTEGER,                 -- and its number there
    PRIMARY KEY (turn, place)
) STRICT, WITHOUT ROWID;

-- The flags of a stretch of turns of any length.
CREATE INDEX item_flag_in_line ON item_flag (branch, number);

-- What begin reads of an owner. Flags and authorizations of the same version are still valid.
CREATE TABLE owner (
    owner TEXT PRIMARY KEY,
    flag_version INTEGER NOT NULL DEFAULT 0,    -- how often its flags have changed
    admission INTEGER NOT NULL DEFAULT 0,       -- how often its tokens have changed
    bytes INTEGER NOT NULL DEFAULT 0,           -- stored: see model/conversation.py
    chats INTEGER NOT NULL DEFAULT 0            -- conversations that are neither purged nor expired
) STRICT, WITHOUT ROWID;

-- Tokens. Of the text of a token only the digest is stored.
CREATE TABLE token (
    id BLOB PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,    -- SHA-256
    owner TEXT NOT NULL,
    name TEXT NOT NULL,
    scopes TEXT NOT NULL,           -- separated by spaces
    chat_scope TEXT NOT NULL,       -- empty for all conversations of the owner
    models TEXT,                    -- a JSON list; NULL for all
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    used_at INTEGER,
    parent BLOB,                    -- the token that created it; NULL for none
    conversation BLOB,              -- the only one it is for; NULL for all
    share BLOB,                     -- the link it was obtained by; NULL for none
    bounds TEXT,                    -- a JSON object: the quotas of its bearer; NULL for none
    defaults TEXT                   -- a JSON object: the policies of its turns; NULL for none
) STRICT, WITHOUT ROWID;

CREATE INDEX token_of_owner ON token (owner, id);
CREATE INDEX token_of_parent ON token (parent) WHERE parent IS NOT NULL;

-- When tokens end: only those that can.
CREATE INDEX token_by_end ON token (min(coalesce(revoked_at, expires_at), coalesce(expires_at, revoked_at)))
    WHERE revoked_at IS NOT NULL OR expires_at IS NOT NULL;

-- Executions of turns: running ones and those set aside.
CREATE TABLE attempt (
    ended INTEGER NOT NULL,         -- 0 while it runs: those are adjacent, without an index
    id BLOB NOT NULL,
    owner TEXT NOT NULL,
    conversation BLOB NOT NULL,
    branch BLOB NOT NULL,
    lease BLOB NOT NULL,
    fence INTEGER NOT NULL,
    state TEXT NOT NULL,
    base BLOB,
    fork BLOB,                      -- a JSON document: where an edit commits; NULL behind the head
    input BLOB,                     -- a JSON document; NULL if long and in attempt_input
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
    interaction INTEGER NOT NULL DEFAULT 1, -- 0 if it does not count as use of the conversation
    bytes INTEGER NOT NULL DEFAULT 0,       -- counted for its owner once it has ended
    reads INTEGER,                  -- signs of readers in other processes; NULL if it never gives way
    PRIMARY KEY (ended, id)
) STRICT, WITHOUT ROWID;

-- Of ended attempts only: a turn that completes writes neither.
CREATE INDEX attempt_of_conversation ON attempt (conversation, id) WHERE ended = 1;
CREATE INDEX attempt_by_end ON attempt (ended_at) WHERE ended = 1;

-- Long inputs, apart from the attempt's row, which each journaled step rewrites.
CREATE TABLE attempt_input (
    ref INTEGER PRIMARY KEY,
    attempt BLOB NOT NULL UNIQUE,
    body BLOB NOT NULL
) STRICT;

-- The journals of attempts. Moved to a retry before its attempt is inserted.
CREATE TABLE journal (
    attempt BLOB NOT NULL,
    number INTEGER NOT NULL,
    record BLOB NOT NULL,
    PRIMARY KEY (attempt, number)
) STRICT, WITHOUT ROWID;

-- The events of running attempts, in chunks; of those set aside, in one.
CREATE TABLE event_log (
    attempt BLOB NOT NULL,
    number INTEGER NOT NULL,
    chunk BLOB NOT NULL,
    PRIMARY KEY (attempt, number)
) STRICT, WITHOUT ROWID;

-- The queues of the branches.
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
    claimed BLOB,                   -- what the idempotency_key referred to when the ticket was taken
    interaction INTEGER NOT NULL DEFAULT 1  -- 0 if its turn does not count as use of the conversation
) STRICT, WITHOUT ROWID;

CREATE INDEX ticket_of_branch ON ticket (branch, front DESC, number);
CREATE INDEX ticket_of_lease ON ticket (lease);
CREATE INDEX ticket_of_key ON ticket (idempotency_key) WHERE idempotency_key IS NOT NULL;

-- Requests of durable turns that wait or run.
CREATE TABLE job (
    id BLOB PRIMARY KEY,            -- that of its ticket, then of its attempt
    owner TEXT NOT NULL,
    conversation BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    resumes INTEGER NOT NULL,       -- how often it was left to be resumed
    body BLOB NOT NULL              -- a JSON document: the request
) STRICT, WITHOUT ROWID;

CREATE INDEX job_of_owner ON job (owner, id);

-- What each idempotency_key refers to.
CREATE TABLE claim (
    owner TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    conversation BLOB NOT NULL,
    attempt BLOB NOT NULL,
    expires_at INTEGER,
    retries INTEGER,                -- of a request without an idempotency_key: the number of the try
    lost INTEGER NOT NULL,          -- whether the client has left without the answer
    sender BLOB,                    -- the request that receives the answer
    PRIMARY KEY (owner, idempotency_key)
) STRICT, WITHOUT ROWID;

CREATE INDEX claim_expiring ON claim (expires_at) WHERE expires_at IS NOT NULL;

-- The processes that share this store. A beat below 0 is the last one of a buried lease.
CREATE TABLE lease (
    id BLOB PRIMARY KEY,
    beat INTEGER NOT NULL,
    buried INTEGER                  -- its order, rising with each burial; NULL if not buried
) STRICT, WITHOUT ROWID;

-- The changes of the feed, in the order of commits. The newest row is never removed, so that numbers continue. No further
-- index: every turn appends two rows, and their number is bounded.
CREATE TABLE change (
    number INTEGER PRIMARY KEY,
    owner TEXT NOT NULL,
    scope TEXT NOT NULL,
    kind INTEGER NOT NULL,
    conversation BLOB NOT NULL,
    turn BLOB,
    branch BLOB,
    at INTEGER NOT NULL,
    detail TEXT                     -- a word of ours, never text of a user
) STRICT;

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
    parent BLOB,                    -- the token that created it; NULL for none
    bounds TEXT,                    -- a JSON object: the quotas of its visitors; NULL for none
    bytes INTEGER NOT NULL DEFAULT 0,       -- stored by all its visitors
    chats INTEGER NOT NULL DEFAULT 0        -- and their conversations
) STRICT, WITHOUT ROWID;

CREATE INDEX share_of_owner ON share (owner, id);
CREATE INDEX share_made_by ON share (parent) WHERE parent IS NOT NULL;
CREATE INDEX share_ended ON share (min(coalesce(revoked_at, expires_at), coalesce(expires_at, revoked_at)))
    WHERE revoked_at IS NOT NULL OR expires_at IS NOT NULL;
CREATE INDEX token_of_share ON token (share, created_at) WHERE share IS NOT NULL;

-- The index of visible words, without the texts. A search reads each match again, and checks only then whether words are
-- adjacent: their positions would take more room than the texts. Each word has a mark of its owner and of a block of
-- turns, so that a search reads one block at a time.
CREATE VIRTUAL TABLE turn_words USING fts5(
    words, content='', contentless_delete=1, detail='none', tokenize='ascii');
CREATE VIRTUAL TABLE title_words USING fts5(
    words, content='', contentless_delete=1, detail='none', tokenize='ascii');

-- Blocks of an owner's turns, in order: a page costs only the last block, however many turns there are.
CREATE TABLE search_block (
    owner TEXT NOT NULL,
    first INTEGER NOT NULL,         -- the ref of its first turn; it ends before that of the next block
    turns INTEGER NOT NULL,         -- how many were added
    PRIMARY KEY (owner, first)
) STRICT, WITHOUT ROWID;

-- Blocks of titles, by conversation.
CREATE TABLE title_block (
    owner TEXT NOT NULL,
    first INTEGER NOT NULL,         -- the ref of a conversation, or 0; it ends before that of the next block
    titles INTEGER NOT NULL,        -- how many were added
    PRIMARY KEY (owner, first)
) STRICT, WITHOUT ROWID;

-- Turns up to this one are indexed.
CREATE TABLE search_mark (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    turn INTEGER NOT NULL,          -- its ref
    has_remains INTEGER NOT NULL DEFAULT 0  -- 1 if words of removed texts may still be in the index
) STRICT;

INSERT INTO search_mark (id, turn) VALUES (1, 0);

-- Earlier ones that have to be indexed again.
CREATE TABLE turn_due (
    turn INTEGER PRIMARY KEY        -- its ref
) STRICT;

-- A random secret, made once: servers seal the cursors they hand out with it.
CREATE TABLE secret (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    bits BLOB NOT NULL CHECK (length(bits) = 32)
) STRICT;
INSERT INTO secret (id, bits) VALUES (1, randomblob(32));

-- The clocks as the last process read them: the next one checks the wall clock against this.
CREATE TABLE clock (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    boot TEXT NOT NULL,             -- identifies the boot; empty if unknown
    boot_at INTEGER NOT NULL,       -- its wall time
    since INTEGER NOT NULL,         -- milliseconds after boot at which boot_at was first computed
    trusted_at INTEGER NOT NULL     -- the latest trusted wall time
) STRICT;
