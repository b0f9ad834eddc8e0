-- The clocks of the machine, as the last process saw them: the next one judges the wall clock by this.
CREATE TABLE clock (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    boot TEXT NOT NULL,             -- names the start of the machine; empty where that is not known
    boot_at INTEGER NOT NULL,       -- the wall time of that, as the wall clock had it
    since INTEGER NOT NULL,         -- milliseconds after the start, from which on it had it so
    trusted_at INTEGER NOT NULL     -- the latest wall time that was trusted
) STRICT;
