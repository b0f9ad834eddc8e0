-- The current tables of a Turnledger store in PostgreSQL; new stores are created with this file. The files in migrations/
-- lead older ones here step by step; a test proves both equal.
--
-- Ids are 16 bytes, unique among all owners; times are milliseconds since 1970. No foreign keys, sequences or triggers.
-- Texts sort by their bytes. Columns are only ever appended: queries read whole rows and use the columns that they know.

-- The SHA-256 of a key: a row of an index has at most 2,704 bytes, and a key up to 2,048, so several do not fit into one. The
-- backslashes are doubled because the cast to bytes reads escapes.
CREATE FUNCTION key_digest(key text) RETURNS bytea IMMUTABLE PARALLEL SAFE RETURN sha256(replace(key, '\', '\\')::bytea);

-- One row: the version of this schema, and random bytes, made once: servers seal the cursors they hand out with them.
CREATE TABLE store (
    id smallint PRIMARY KEY CHECK (id = 1),
    version integer NOT NULL,
    secret bytea NOT NULL CHECK (length(secret) = 32),
    purged_xid bigint NOT NULL DEFAULT -1,  -- the position of the last change that was removed
    purged_place bigint NOT NULL DEFAULT -1,
    epoch bigint NOT NULL DEFAULT 0         -- how often positions of changes began anew
);

-- In which epoch positions of changes are valid: during one run of the database server, in which transaction numbers only rise.
-- Unlogged: PostgreSQL empties this table when it recovers from a crash, also of one of its processes, and then gives out the
-- numbers of lost transactions again. A restored dump has the row, but in another run, or as another table.
CREATE UNLOGGED TABLE epoch (
    id smallint PRIMARY KEY CHECK (id = 1),
    number bigint NOT NULL,
    mark bytea NOT NULL,            -- random: no two epochs are the same, even if a failover lost the number
    started timestamptz NOT NULL,   -- when the server was
    place oid NOT NULL              -- of this table
);

-- Every writer locks the row of its owner: a turn shares it with other turns (FOR KEY SHARE), all else waits until it is
-- alone (FOR UPDATE). Rows are never removed.
CREATE TABLE owner (
    owner text COLLATE "C" PRIMARY KEY,
    flag_version bigint NOT NULL DEFAULT 0, -- how often its flags have changed
    admission bigint NOT NULL DEFAULT 0,    -- how often its tokens have changed
    bytes bigint NOT NULL DEFAULT 0,        -- stored: see model/conversation.py
    chats bigint NOT NULL DEFAULT 0,        -- conversations that are neither purged nor expired
    last_text bigint NOT NULL DEFAULT 0,    -- the last place of a turn in the search index
    last_title bigint NOT NULL DEFAULT 0    -- and of a title
) WITH (fillfactor = 70);

-- A chat, as its user sees it.
CREATE TABLE conversation (
    id bytea PRIMARY KEY,
    owner text COLLATE "C" NOT NULL,
    branch bytea NOT NULL,          -- the current one
    conversation_key text COLLATE "C",      -- NULL: none, or freed by a deletion or reset
    state text COLLATE "C" NOT NULL,        -- live, deleted, purged, expired
    internal smallint NOT NULL,
    title text COLLATE "C",
    metadata text COLLATE "C",      -- a JSON object; NULL when empty
    revision bigint NOT NULL,
    created_at bigint NOT NULL,
    touched_at bigint NOT NULL,
    expires_after bigint,
    reset_policy bytea,             -- a JSON document; NULL for never
    former_conversation_key text COLLATE "C",       -- the one it had before a reset
    scope text COLLATE "C" NOT NULL,        -- of one application; never changes
    tags text COLLATE "C",          -- a JSON list; NULL for none
    pinned smallint NOT NULL,
    archived smallint NOT NULL,
    named_by text COLLATE "C",      -- the source of its title: person, words, model; NULL without one
    listed smallint NOT NULL,       -- 0 if a turn created it, until one is committed
    purge_at bigint,                -- when a deleted one is purged
    version bigint NOT NULL DEFAULT 0,      -- rises with every change but that of touched_at
    swept smallint NOT NULL DEFAULT 0       -- 1 when it has ended and its turns and attempts are removed
) WITH (fillfactor = 80);

-- A conversation_key names one conversation of a scope.
CREATE UNIQUE INDEX conversation_by_key ON conversation (owner, key_digest(scope), key_digest(conversation_key))
    WHERE conversation_key IS NOT NULL;

-- The list of an owner, last touched first.
CREATE INDEX conversation_listed ON conversation (owner, archived, touched_at DESC, id DESC)
    WHERE state = 'live' AND internal = 0 AND listed = 1;

-- The list of one scope: only conversations with a scope pay for it.
CREATE INDEX conversation_listed_in_scope
    ON conversation (owner, key_digest(scope), archived, touched_at DESC, id DESC)
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
CREATE INDEX conversation_lapsing ON conversation ((touched_at + expires_after))
    WHERE state = 'live' AND expires_after IS NOT NULL;

-- Ended conversations with rows to remove.
CREATE INDEX conversation_unswept ON conversation (owner, id)
    WHERE state IN ('purged', 'expired') AND swept = 0;

-- What only moves between branches read.
CREATE TABLE trail (
    owner text COLLATE "C" NOT NULL,
    conversation bytea NOT NULL,
    switches bytea,                 -- the ids of the last few switches between branches
    forgotten bytea,                -- the effects that an undo was asked to forget
    PRIMARY KEY (owner, conversation)
);

-- Conversations by tag.
CREATE TABLE conversation_tag (
    owner text COLLATE "C" NOT NULL,
    tag text COLLATE "C" NOT NULL,
    conversation bytea NOT NULL,
    PRIMARY KEY (owner, tag, conversation)
);

-- A line of turns, with its lane, its fence and its head.
CREATE TABLE branch (
    owner text COLLATE "C" NOT NULL,
    id bytea PRIMARY KEY,
    number integer NOT NULL,        -- among the branches of its conversation, in order of creation
    conversation bytea NOT NULL,
    fence bigint NOT NULL,
    head bytea,
    length bigint NOT NULL,
    running bytea,
    unsettled bytea,
    pending bytea,                  -- a JSON document of items; NULL for none
    start bigint NOT NULL,          -- its own turns come after this number
    settled bigint NOT NULL,        -- no turn of kind 2 or 3 on the line comes after this number
    last_ticket bigint NOT NULL DEFAULT 0,
    instructed bigint NOT NULL,     -- number of the turn whose instructions are in force at the head
    bytes bigint NOT NULL,          -- of the bodies and logs of its own turns
    preview text COLLATE "C" NOT NULL,      -- the beginning of the last text at its head
    used_at bigint,                 -- of a side branch: its last use; NULL for all others
    version bigint NOT NULL DEFAULT 0,      -- rises with every change
    cleared smallint NOT NULL DEFAULT 0     -- 1 when its conversation has ended and its turns are removed
) WITH (fillfactor = 70);

CREATE UNIQUE INDEX branch_of_conversation ON branch (owner, conversation, number);

-- Side branches, for retention.
CREATE INDEX branch_by_use ON branch (used_at) WHERE used_at IS NOT NULL;

-- How branches were made from others; written once.
CREATE TABLE origin (
    owner text COLLATE "C" NOT NULL,
    branch bytea NOT NULL,
    conversation bytea NOT NULL,
    base bytea,                     -- the turn it was made from; NULL for the beginning
    source bytea,                   -- the branch of that turn
    through bigint NOT NULL,        -- and its number
    line bytea,                     -- the packed stretches before its own turns; NULL for none
    PRIMARY KEY (owner, branch)
);

CREATE INDEX origin_of_base ON origin (owner, conversation, base);
CREATE INDEX origin_of_source ON origin (owner, source);

-- The history: rows are inserted and, when their conversation has ended, removed; never updated.
CREATE TABLE turn (
    owner text COLLATE "C" NOT NULL,
    id bytea NOT NULL,
    branch bytea NOT NULL,
    number bigint NOT NULL,
    parent bytea,
    kind smallint NOT NULL,         -- 0 completed, 1 interrupted, 2 settled, 3 interrupted after tools acted
    created_at bigint NOT NULL,
    committed_at bigint NOT NULL,
    body bytea NOT NULL,
    checksum bigint NOT NULL,       -- CRC-32 of the row, and above it of the log
    log bytea,                      -- of its events; NULL if the body alone determines them
    PRIMARY KEY (owner, branch, number)
);

CREATE UNIQUE INDEX turn_by_id ON turn (id);

-- Turns with effects, anywhere in a long line: they are carried to branches that leave them out.
CREATE INDEX turn_settled ON turn (owner, branch, number) WHERE kind >= 2;

-- Hidden items. In rows of their own, which no commit writes.
CREATE TABLE item_flag (
    owner text COLLATE "C" NOT NULL,
    turn bytea NOT NULL,
    place integer NOT NULL,         -- among the items of the turn, from 0
    to_model smallint NOT NULL,
    to_user smallint NOT NULL,
    branch bytea NOT NULL,          -- of the turn
    number bigint NOT NULL,         -- and its number there
    PRIMARY KEY (owner, turn, place)
);

-- The flags of a stretch of turns of any length.
CREATE INDEX item_flag_in_line ON item_flag (owner, branch, number);

-- Tokens. Of the text of a token only the digest is stored.
CREATE TABLE token (
    id bytea PRIMARY KEY,
    digest bytea NOT NULL UNIQUE,   -- SHA-256
    owner text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    scopes text COLLATE "C" NOT NULL,       -- separated by spaces
    chat_scope text COLLATE "C" NOT NULL,   -- empty for all conversations of the owner
    models text COLLATE "C",        -- a JSON list; NULL for all
    created_at bigint NOT NULL,
    expires_at bigint,
    revoked_at bigint,
    used_at bigint,
    parent bytea,                   -- the token that created it; NULL for none
    conversation bytea,             -- the only one it is for; NULL for all
    share bytea,                    -- the link it was obtained by; NULL for none
    bounds text COLLATE "C",        -- a JSON object: the quotas of its bearer; NULL for none
    defaults text COLLATE "C"       -- a JSON object: the policies of its turns; NULL for none
);

CREATE INDEX token_of_owner ON token (owner, id);
CREATE INDEX token_of_parent ON token (parent) WHERE parent IS NOT NULL;
CREATE INDEX token_of_share ON token (share, created_at) WHERE share IS NOT NULL;

-- When tokens end: only those that can.
CREATE INDEX token_by_end ON token (least(revoked_at, expires_at))
    WHERE revoked_at IS NOT NULL OR expires_at IS NOT NULL;

-- Share links. Of the code of a link only the digest is stored.
CREATE TABLE share (
    id bytea PRIMARY KEY,
    digest bytea NOT NULL UNIQUE,   -- SHA-256
    owner text COLLATE "C" NOT NULL,        -- its creator
    name text COLLATE "C" NOT NULL,
    chat_scope text COLLATE "C" NOT NULL,
    conversation bytea,             -- the one chat it shows; NULL: the whole scope
    models text COLLATE "C",        -- a JSON list; NULL for all
    max_uses bigint,
    uses bigint NOT NULL,
    per_minute bigint,
    visitor_lifetime bigint,        -- milliseconds that a visitor's token is valid
    created_at bigint NOT NULL,
    expires_at bigint,
    revoked_at bigint,
    parent bytea,                   -- the token that created it; NULL for none
    bounds text COLLATE "C",        -- a JSON object: the quotas of its visitors; NULL for none
    bytes bigint NOT NULL,          -- stored by all its visitors
    chats bigint NOT NULL           -- and their conversations
);

CREATE INDEX share_of_owner ON share (owner, id);
CREATE INDEX share_made_by ON share (parent) WHERE parent IS NOT NULL;
CREATE INDEX share_by_end ON share (least(revoked_at, expires_at))
    WHERE revoked_at IS NOT NULL OR expires_at IS NOT NULL;

-- Executions of turns: running ones and those set aside.
CREATE TABLE attempt (
    id bytea PRIMARY KEY,
    owner text COLLATE "C" NOT NULL,
    conversation bytea NOT NULL,
    branch bytea NOT NULL,
    lease bytea NOT NULL,
    fence bigint NOT NULL,
    state text COLLATE "C" NOT NULL,
    base bytea,
    fork bytea,                     -- a JSON document: where an edit commits; NULL behind the head
    input bytea NOT NULL,           -- a JSON document
    on_stop text COLLATE "C" NOT NULL,
    on_failure text COLLATE "C" NOT NULL,
    idempotency_key text COLLATE "C",
    stop text COLLATE "C",
    failure_code text COLLATE "C",
    failure_message text COLLATE "C",
    partial text COLLATE "C",
    journaled bigint NOT NULL,
    created_at bigint NOT NULL,
    ended_at bigint,
    interaction smallint NOT NULL,  -- 0 if it does not count as use of the conversation
    bytes bigint NOT NULL,          -- counted for its owner once it has ended
    reads bigint,                   -- signs of readers in other processes; NULL if it never gives way
    ended smallint NOT NULL,        -- 0 while it runs
    version bigint NOT NULL DEFAULT 0       -- rises with every change
) WITH (fillfactor = 70);

CREATE INDEX attempt_of_conversation ON attempt (owner, conversation, id);
CREATE INDEX attempt_of_lease ON attempt (lease) WHERE ended = 0;
CREATE INDEX attempt_by_end ON attempt (ended_at) WHERE ended = 1;

-- The journals of attempts. Moved to a retry before its attempt is inserted.
CREATE TABLE journal (
    owner text COLLATE "C" NOT NULL,
    attempt bytea NOT NULL,
    number bigint NOT NULL,
    record bytea NOT NULL,
    PRIMARY KEY (owner, attempt, number)
);

-- The events of running attempts, in chunks; of those set aside, in one.
CREATE TABLE event_log (
    owner text COLLATE "C" NOT NULL,
    attempt bytea NOT NULL,
    number bigint NOT NULL,
    chunk bytea NOT NULL,
    PRIMARY KEY (owner, attempt, number)
);

-- The queues of the branches.
CREATE TABLE ticket (
    attempt bytea PRIMARY KEY,
    conversation bytea NOT NULL,
    branch bytea NOT NULL,
    number bigint NOT NULL,
    front smallint NOT NULL,
    lease bytea NOT NULL,
    deadline bigint NOT NULL,
    idempotency_key text COLLATE "C",
    fingerprint bytea NOT NULL,
    claimed bytea,                  -- what the idempotency_key referred to when the ticket was taken
    interaction smallint NOT NULL,  -- 0 if its turn does not count as use of the conversation
    owner text COLLATE "C" NOT NULL
);

CREATE INDEX ticket_of_branch ON ticket (owner, branch, front DESC, number);
CREATE INDEX ticket_of_lease ON ticket (lease);
CREATE INDEX ticket_of_key ON ticket (owner, key_digest(idempotency_key)) WHERE idempotency_key IS NOT NULL;

-- Requests of durable turns that wait or run.
CREATE TABLE job (
    id bytea PRIMARY KEY,           -- that of its ticket, then of its attempt
    owner text COLLATE "C" NOT NULL,
    conversation bytea NOT NULL,
    created_at bigint NOT NULL,
    resumes bigint NOT NULL,        -- how often it was left to be resumed
    body bytea NOT NULL             -- a JSON document: the request
);

CREATE INDEX job_of_owner ON job (owner, id);

-- What each idempotency_key refers to.
CREATE TABLE claim (
    owner text COLLATE "C" NOT NULL,
    idempotency_key text COLLATE "C" NOT NULL,
    fingerprint bytea NOT NULL,
    conversation bytea NOT NULL,
    attempt bytea NOT NULL,
    expires_at bigint,
    retries bigint,                 -- of a request without an idempotency_key: the number of the try
    lost smallint NOT NULL,         -- whether the client has left without the answer
    sender bytea                    -- the request that receives the answer
);

CREATE UNIQUE INDEX claim_by_key ON claim (owner, key_digest(idempotency_key));
CREATE INDEX claim_expiring ON claim (expires_at) WHERE expires_at IS NOT NULL;

-- The processes that share this store.
CREATE TABLE lease (
    id bytea PRIMARY KEY,
    beat bigint NOT NULL
) WITH (fillfactor = 50);

-- Processes found dead. Apart from the others: a begin locks the row of its lease, and must find none here.
CREATE TABLE buried_lease (
    id bytea PRIMARY KEY,
    beat bigint NOT NULL,
    number bigint NOT NULL          -- its order, rising with each burial
);

-- The changes of the feed. A position is the number of the transaction and the place within it: readers stop before the
-- oldest transaction that is still running, so that no change can appear before their position. No index by owner: every
-- turn appends two rows, and their number is bounded.
CREATE TABLE change (
    owner text COLLATE "C" NOT NULL,
    xid bigint NOT NULL,
    place integer NOT NULL,
    at bigint NOT NULL,
    scope text COLLATE "C" NOT NULL,
    kind smallint NOT NULL,
    conversation bytea NOT NULL,
    turn bytea,
    branch bytea,
    detail text COLLATE "C"         -- a word of ours, never text of a user
);

-- Not unique: after a restore, there may be rows of another cluster until the next epoch begins.
CREATE INDEX change_by_position ON change (xid, place);

-- Texts whose words are not indexed as they are now: turns, and titles under the id of their conversation.
CREATE TABLE unindexed (
    owner text COLLATE "C" NOT NULL,
    id bytea NOT NULL,
    title smallint NOT NULL,
    PRIMARY KEY (owner, id)
);

-- The index of visible words, without the texts. Each word has a mark of its owner and of a block of places, so that a
-- search reads one block at a time, the newest first.
CREATE TABLE search_text (
    owner text COLLATE "C" NOT NULL,
    title smallint NOT NULL,
    place bigint NOT NULL,          -- among the turns, or the titles, of the owner
    id bytea NOT NULL,              -- of the turn, or of the conversation
    conversation bytea NOT NULL,
    words tsvector NOT NULL,
    PRIMARY KEY (owner, title, place)
);

CREATE UNIQUE INDEX search_text_by_id ON search_text (owner, id);
CREATE INDEX search_text_words ON search_text USING gin (words) WITH (fastupdate = off);

-- The clocks as the last process read them: the next one checks the wall clock against this.
CREATE TABLE clock (
    id smallint PRIMARY KEY CHECK (id = 1),
    boot text COLLATE "C" NOT NULL, -- identifies the boot; empty if unknown
    boot_at bigint NOT NULL,        -- its wall time
    since bigint NOT NULL,          -- milliseconds after boot at which boot_at was first computed
    trusted_at bigint NOT NULL      -- the latest trusted wall time
);
