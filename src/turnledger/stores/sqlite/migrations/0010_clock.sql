-- The clocks as the last process read them: the next one checks the wall clock against this.
CREATE TABLE clock (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    boot TEXT NOT NULL,             -- identifies the boot; empty if unknown
    boot_at INTEGER NOT NULL,       -- its wall time
    since INTEGER NOT NULL,         -- milliseconds after boot at which boot_at was first computed
    trusted_at INTEGER NOT NULL     -- the latest trusted wall time
) STRICT;
