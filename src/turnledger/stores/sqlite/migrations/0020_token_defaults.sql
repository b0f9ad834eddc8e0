-- The policies of the turns that a token requests, unless the request chooses: a JSON object. NULL: none.
ALTER TABLE token ADD COLUMN defaults TEXT;
