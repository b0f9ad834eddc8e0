-- The tables of a Turnledger store in SQLite, as they are: a new one is made by this. The files in migrations/
-- lead an older one here, step by step; a test proves both equal.
--
-- Ids are their 16 bytes, times are milliseconds since 1970. What stays for ever (conversations, branches,
-- turns) is kept in rowid tables, which pack long rows tightly. What comes and goes with each turn (attempts,
-- journals, tickets, claims, leases) is kept in its own index: one page less to write, and to free.

-- What a person or program calls one chat.
CREATE TABLE conversation (
    ref INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    branch BLOB NOT NULL,           -- the current one
    conversation_key TEXT,          -- none, or freed by deletion or reset: NULL
    state TEXT NOT NULL,            -- live, deleted, purged, expired
    internal INTEGER NOT NULL,
    title TEXT,
    metadata TEXT,                  -- a JSON object; NULL when empty
    revision INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    touched_at INTEGER NOT NULL,
    expires_after INTEGER,
    swept INTEGER NOT NULL DEFAULT 0, -- 1 when it has ended and none of its turns and attempts is left
    reset_policy BLOB,              -- a JSON document; NULL for never
    former_conversation_key TEXT,   -- the one that named it until a reset
    switches BLOB,                  -- the ids of the last few switches between branches; NULL for none
    scope TEXT NOT NULL DEFAULT '', -- the application it is for; never changed
    tags TEXT,                      -- a JSON list; NULL for none
    pinned INTEGER NOT NULL DEFAULT 0,
    archived INTEGER NOT NULL DEFAULT 0,
    named_by TEXT,                  -- who gave it its title: person, words, model; NULL while it has none
    listed INTEGER NOT NULL DEFAULT 1,      -- 0 where a turn made it, until one is committed
    purge_at INTEGER,               -- when one that is deleted goes for good
    title_due INTEGER NOT NULL DEFAULT 0,   -- 1 while a search does not know its title as it is
    forgotten BLOB                  -- the effects that an undo was told to forget; NULL for none
) STRICT;

-- One conversation_key of a scope, one conversation.
CREATE UNIQUE INDEX conversation_by_key ON conversation (owner, scope, conversation_key)
    WHERE conversation_key IS NOT NULL;

-- The list that an owner sees, the last touched first.
CREATE INDEX conversation_listed ON conversation (owner, archived, touched_at DESC, id DESC)
    WHERE state = 'live' AND internal = 0 AND listed = 1;

-- The list that one application sees: only those that are of a scope pay for it.
CREATE INDEX conversation_listed_in_scope ON conversation (owner, scope, archived, touched_at DESC, id DESC)
    WHERE state = 'live' AND internal = 0 AND listed = 1 AND scope <> '';

-- Those that are pinned, which are few.
CREATE INDEX conversation_pinned ON conversation (owner, touched_at DESC, id DESC)
    WHERE state = 'live' AND pinned = 1;

-- Deleted ones, by owner and by when they go for good.
CREATE INDEX conversation_deleted ON conversation (owner, touched_at DESC, id DESC)
    WHERE state = 'deleted';
CREATE INDEX conversation_to_purge ON conversation (purge_at)
    WHERE state = 'deleted';

-- Those that never show in a list, to be found when they are old.
CREATE INDEX conversation_internal ON conversation (owner, touched_at, id)
    WHERE state = 'live' AND internal = 1;

-- Begun, and nothing was committed yet.
CREATE INDEX conversation_unlisted ON conversation (touched_at)
    WHERE state = 'live' AND listed = 0;

-- When conversations lapse: only those that can pay for it.
CREATE INDEX conversation_lapsing ON conversation (touched_at + expires_after)
    WHERE state = 'live' AND expires_after IS NOT NULL;

-- Ended conversations that still have something to remove.
CREATE INDEX conversation_unswept ON conversation (ref)
    WHERE state IN ('purged', 'expired') AND swept = 0;

-- Titles that a search does not know yet.
CREATE INDEX conversation_title_due ON conversation (ref) WHERE title_due = 1;

-- The tags of conversations, the other way round.
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
    pending BLOB,                   -- a JSON document of items; NULL when there are none
    start INTEGER NOT NULL DEFAULT 0,       -- its own turns come after this number
    settled INTEGER NOT NULL DEFAULT 0,     -- no turn of kind 2 or 3 on the line comes after this number
    last_ticket INTEGER NOT NULL DEFAULT 0,
    cleared INTEGER NOT NULL DEFAULT 0,     -- 1 when its conversation has ended and its turns are gone
    instructed INTEGER NOT NULL DEFAULT 0,  -- number of the turn whose instructions are in force at the head
    bytes INTEGER NOT NULL DEFAULT 0,       -- of the bodies and logs of its own turns
    preview TEXT NOT NULL DEFAULT ''        -- the beginning of the last text at its head
) STRICT;

CREATE INDEX branch_of_conversation ON branch (conversation);

-- How branches were made from others: written once, for those that were.
CREATE TABLE origin (
    branch INTEGER PRIMARY KEY,     -- its ref
    conversation BLOB NOT NULL,
    base BLOB,                      -- the turn it was made from; NULL for the very beginning
    source INTEGER,                 -- the ref of the branch that this is a turn of
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
    parent BLOB,                    -- NULL when it is the turn before this one on the same branch, or nothing
    kind INTEGER NOT NULL,          -- 0 completed, 1 interrupted, 2 settled, 3 interrupted after tools acted
    created_at INTEGER NOT NULL,
    committed_at INTEGER NOT NULL,
    body BLOB NOT NULL,
    log BLOB,                       -- of its events; NULL when the body alone tells as much
    checksum INTEGER,               -- CRC-32 of the row, and above it of the log; below 0 with its place; NULL: from an older version
    UNIQUE (branch, number)
) STRICT;

-- What tools did, wherever in a long line: it goes along to branches that leave it behind.
CREATE INDEX turn_settled ON turn (branch, number) WHERE kind >= 2;

-- Items that are not shown to everybody. In rows of their own, which no commit writes.
CREATE TABLE item_flag (
    turn BLOB NOT NULL,
    place INTEGER NOT NULL,         -- among the items of the turn, from 0
    owner TEXT NOT NULL,
    to_model INTEGER NOT NULL,
    to_user INTEGER NOT NULL,
    branch INTEGER,                 -- where the turn stands: the ref of its branch
    number INTEGER,                 -- and its number there
    PRIMARY KEY (turn, place)
) STRICT, WITHOUT ROWID;

-- All flags of a stretch of turns, however long that is.
CREATE INDEX item_flag_in_line ON item_flag (branch, number);

-- What begins ask of an owner. What was read or granted under the same number still holds.
CREATE TABLE owner (
    owner TEXT PRIMARY KEY,
    flag_version INTEGER NOT NULL DEFAULT 0,    -- how often flags were changed
    admission INTEGER NOT NULL DEFAULT 0,       -- how often it has changed who is let in
    bytes INTEGER NOT NULL DEFAULT 0,           -- what they store: see model/usage.py
    chats INTEGER NOT NULL DEFAULT 0            -- conversations that are neither purged nor expired
) STRICT, WITHOUT ROWID;

-- Who is let in. Of the text that its bearer shows there is only the digest.
CREATE TABLE token (
    id BLOB PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,    -- SHA-256
    owner TEXT NOT NULL,
    name TEXT NOT NULL,
    scopes TEXT NOT NULL,           -- parted by spaces
    chat_scope TEXT NOT NULL,       -- empty for all conversations of the owner
    models TEXT,                    -- a JSON list; NULL for all
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    used_at INTEGER,
    parent BLOB,                    -- the token that made it; NULL for none
    conversation BLOB,              -- the only one that it is for; NULL for all
    share BLOB,                     -- the link that it was got by; NULL for none
    bounds TEXT                     -- a JSON object: how much its bearer may ask for; NULL for no bounds
) STRICT, WITHOUT ROWID;

CREATE INDEX token_of_owner ON token (owner, id);
CREATE INDEX token_of_parent ON token (parent) WHERE parent IS NOT NULL;

-- When tokens have ended: only those that can.
CREATE INDEX token_by_end ON token (min(coalesce(revoked_at, expires_at), coalesce(expires_at, revoked_at)))
    WHERE revoked_at IS NOT NULL OR expires_at IS NOT NULL;

-- Executions of turns: the running ones and those kept aside.
CREATE TABLE attempt (
    ended INTEGER NOT NULL,         -- 0 while it runs: those lie side by side, without an index
    id BLOB NOT NULL,
    owner TEXT NOT NULL,
    conversation BLOB NOT NULL,
    branch BLOB NOT NULL,
    lease BLOB NOT NULL,
    fence INTEGER NOT NULL,
    state TEXT NOT NULL,
    base BLOB,
    fork BLOB,                      -- a JSON document: where an edit commits; NULL behind the head
    input BLOB,                     -- a JSON document; NULL when it is long and lies in attempt_input
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
    bytes INTEGER NOT NULL DEFAULT 0,       -- what it counts for its owner once it has ended
    PRIMARY KEY (ended, id)
) STRICT, WITHOUT ROWID;

-- Of ended attempts only: a turn that goes well touches neither.
CREATE INDEX attempt_of_conversation ON attempt (conversation, id) WHERE ended = 1;
CREATE INDEX attempt_by_end ON attempt (ended_at) WHERE ended = 1;

-- Long inputs: each journaled step rewrites the attempt's row, and must not rewrite these.
CREATE TABLE attempt_input (
    ref INTEGER PRIMARY KEY,
    attempt BLOB NOT NULL UNIQUE,
    body BLOB NOT NULL
) STRICT;

-- What running attempts have durably recorded. Moved to a retry before the retry's attempt is there.
CREATE TABLE journal (
    attempt BLOB NOT NULL,
    number INTEGER NOT NULL,
    record BLOB NOT NULL,
    PRIMARY KEY (attempt, number)
) STRICT, WITHOUT ROWID;

-- What running attempts have told their readers, in chunks; of those kept aside, all of it in one.
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
    claimed BLOB,                   -- what the idempotency_key stood for when the ticket was taken
    interaction INTEGER NOT NULL DEFAULT 1  -- 0 if its turn does not count as use of the conversation
) STRICT, WITHOUT ROWID;

CREATE INDEX ticket_of_branch ON ticket (branch, front DESC, number);
CREATE INDEX ticket_of_lease ON ticket (lease);

-- What each idempotency_key stands for.
CREATE TABLE claim (
    owner TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    conversation BLOB NOT NULL,
    attempt BLOB NOT NULL,
    expires_at INTEGER,
    retries INTEGER,                -- of a request without an idempotency_key: which try of its client it was
    lost INTEGER NOT NULL,          -- whether nobody is there to be given the answer
    sender BLOB,                    -- the request that is to be given the answer
    PRIMARY KEY (owner, idempotency_key)
) STRICT, WITHOUT ROWID;

CREATE INDEX claim_expiring ON claim (expires_at) WHERE expires_at IS NOT NULL;

-- The processes that share this store. A beat below 0 is the last one of a process that was buried.
CREATE TABLE lease (
    id BLOB PRIMARY KEY,
    beat INTEGER NOT NULL,
    buried INTEGER                  -- in which order: rises with each burial; NULL while the process is there
) STRICT, WITHOUT ROWID;

-- What owners are told of as it happens, in the order of commits. The newest row is never removed: numbers go
-- on. It has no index but its own: every turn adds two rows, all at the end, and only so many are kept.
CREATE TABLE change (
    number INTEGER PRIMARY KEY,
    owner TEXT NOT NULL,
    scope TEXT NOT NULL,
    kind INTEGER NOT NULL,
    conversation BLOB NOT NULL,
    turn BLOB,
    branch BLOB,
    at INTEGER NOT NULL,
    detail TEXT                     -- a word about it; nothing that anybody wrote
) STRICT;

-- Links that let visitors in. Of the code in them there is only the digest.
CREATE TABLE share (
    id BLOB PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,    -- SHA-256
    owner TEXT NOT NULL,            -- who made it
    name TEXT NOT NULL,
    chat_scope TEXT NOT NULL,
    conversation BLOB,              -- the one chat that it shows; NULL: it lets into the scope
    models TEXT,                    -- a JSON list; NULL for all
    max_uses INTEGER,
    uses INTEGER NOT NULL DEFAULT 0,
    per_minute INTEGER,
    visitor_lifetime INTEGER,       -- milliseconds that a visitor's token is good for
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    parent BLOB,                    -- the token that made it; NULL for none
    bounds TEXT,                    -- a JSON object: how much its visitors may ask for; NULL for no bounds
    bytes INTEGER NOT NULL DEFAULT 0,       -- what all its visitors store
    chats INTEGER NOT NULL DEFAULT 0        -- and how many conversations they keep
) STRICT, WITHOUT ROWID;

CREATE INDEX share_of_owner ON share (owner, id);
CREATE INDEX share_made_by ON share (parent) WHERE parent IS NOT NULL;
CREATE INDEX share_ended ON share (min(coalesce(revoked_at, expires_at), coalesce(expires_at, revoked_at)))
    WHERE revoked_at IS NOT NULL OR expires_at IS NOT NULL;
CREATE INDEX token_of_share ON token (share, created_at) WHERE share IS NOT NULL;

-- The words of what people see, to be found. Nothing of the texts themselves is kept here: what is found is read
-- again where it stands, and only then it shows whether words stand together: to know that here would take more
-- room than the texts. Each word bears a mark of its owner and of a block of turns, so that a search reads no more
-- than those of one.
CREATE VIRTUAL TABLE turn_words USING fts5(
    words, content='', contentless_delete=1, detail='none', tokenize='ascii');
CREATE VIRTUAL TABLE title_words USING fts5(
    words, content='', contentless_delete=1, detail='none', tokenize='ascii');

-- So many turns of an owner, one after the other: however many he has, a page costs what is in the last block.
CREATE TABLE search_block (
    owner TEXT NOT NULL,
    first INTEGER NOT NULL,         -- the ref of the first turn; the others come before that of the next block
    turns INTEGER NOT NULL,         -- how many were put there
    PRIMARY KEY (owner, first)
) STRICT, WITHOUT ROWID;

-- And so many titles: those of conversations from this one on.
CREATE TABLE title_block (
    owner TEXT NOT NULL,
    first INTEGER NOT NULL,         -- the ref of a conversation, or 0; the others come before that of the next block
    titles INTEGER NOT NULL,        -- how many were put there
    PRIMARY KEY (owner, first)
) STRICT, WITHOUT ROWID;

-- Turns up to this one were looked through.
CREATE TABLE search_mark (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    turn INTEGER NOT NULL,          -- its ref
    has_remains INTEGER NOT NULL DEFAULT 0  -- 1 if words of removed texts may still be in the index
) STRICT;

INSERT INTO search_mark (id, turn) VALUES (1, 0);

-- Earlier ones that have to be looked through again.
CREATE TABLE turn_due (
    turn INTEGER PRIMARY KEY        -- its ref
) STRICT;

-- Whoever gives a title, a search shall know it. One that is made of the first words is found by those.
CREATE TRIGGER title_given AFTER INSERT ON conversation
WHEN new.title IS NOT NULL AND new.named_by IS NOT 'words'
BEGIN
    UPDATE conversation SET title_due = 1 WHERE ref = new.ref;
END;

CREATE TRIGGER title_changed AFTER UPDATE OF title ON conversation
WHEN (old.title, old.named_by) IS NOT (new.title, new.named_by)
    AND (new.named_by IS NOT 'words' OR old.title IS NOT NULL)
BEGIN
    UPDATE conversation SET title_due = 1 WHERE ref = new.ref;
END;

-- What is shown or hidden later is found or not found later. A purge removes the turn first.
CREATE TRIGGER item_hidden AFTER INSERT ON item_flag
BEGIN
    INSERT OR IGNORE INTO turn_due (turn)
    SELECT ref FROM turn WHERE id = new.turn AND ref <= (SELECT turn FROM search_mark);
END;

CREATE TRIGGER item_shown AFTER DELETE ON item_flag
BEGIN
    INSERT OR IGNORE INTO turn_due (turn)
    SELECT ref FROM turn WHERE id = old.turn AND ref <= (SELECT turn FROM search_mark);
END;

-- With a turn go its words. The highest refs are given again, to turns that are to be looked through.
CREATE TRIGGER turn_purged AFTER DELETE ON turn
BEGIN
    DELETE FROM turn_words WHERE rowid = old.ref;
    DELETE FROM turn_due WHERE turn = old.ref;
    UPDATE search_mark SET turn = min(turn, coalesce((SELECT max(ref) FROM turn), 0)), has_remains = 1;
END;

-- What nobody outside knows, made once: by it, servers seal what they hand out and take back.
CREATE TABLE secret (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    bits BLOB NOT NULL CHECK (length(bits) = 32)
) STRICT;
INSERT INTO secret (id, bits) VALUES (1, randomblob(32));

-- The clocks of the machine, as the last process saw them: the next one judges the wall clock by this.
CREATE TABLE clock (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    boot TEXT NOT NULL,             -- names the start of the machine; empty where that is not known
    boot_at INTEGER NOT NULL,       -- the wall time of that, as the wall clock had it
    since INTEGER NOT NULL,         -- milliseconds after the start, from which on it had it so
    trusted_at INTEGER NOT NULL     -- the latest wall time that was trusted
) STRICT;
