-- A row of an index has at most 2,704 bytes, and a key up to 2,048: several do not fit into one.

CREATE FUNCTION key_digest(key text) RETURNS bytea IMMUTABLE PARALLEL SAFE RETURN sha256(replace(key, '\', '\\')::bytea);

DROP INDEX conversation_by_key;
CREATE UNIQUE INDEX conversation_by_key ON conversation (owner, key_digest(scope), key_digest(conversation_key))
    WHERE conversation_key IS NOT NULL;

DROP INDEX conversation_listed_in_scope;
CREATE INDEX conversation_listed_in_scope
    ON conversation (owner, key_digest(scope), archived, touched_at DESC, id DESC)
    WHERE state = 'live' AND internal = 0 AND listed = 1 AND scope <> '';

DROP INDEX ticket_of_key;
CREATE INDEX ticket_of_key ON ticket (owner, key_digest(idempotency_key)) WHERE idempotency_key IS NOT NULL;

ALTER TABLE claim DROP CONSTRAINT claim_pkey;
CREATE UNIQUE INDEX claim_by_key ON claim (owner, key_digest(idempotency_key));
