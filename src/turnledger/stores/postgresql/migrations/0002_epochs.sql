-- Positions of changes end with the transaction numbers that they are made of.

ALTER TABLE store ADD COLUMN epoch bigint NOT NULL DEFAULT 0;

CREATE UNLOGGED TABLE epoch (
    id smallint PRIMARY KEY CHECK (id = 1),
    number bigint NOT NULL,
    mark bytea NOT NULL,
    started timestamptz NOT NULL,
    place oid NOT NULL
);

-- Rows of another cluster may have the same numbers.
ALTER TABLE change DROP CONSTRAINT change_pkey;
CREATE INDEX change_by_position ON change (xid, place);
