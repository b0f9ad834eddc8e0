-- How often readers in other processes have said that they read a running turn, which gives way once nobody does. NULL: it
-- never gives way.
ALTER TABLE attempt ADD COLUMN reads INTEGER;
