-- Tickets by idempotency key, to stop a queued turn whose id its client does not know yet.
CREATE INDEX ticket_of_key ON ticket (idempotency_key) WHERE idempotency_key IS NOT NULL;
