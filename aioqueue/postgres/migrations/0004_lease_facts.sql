-- oldest code: 1
-- What a worker says of itself when it opens a lease: which job types are claimed for it, and how many jobs it runs at once.
-- Code from before says nothing of it, which shows as unknown.

ALTER TABLE @schema@.lease ADD COLUMN types text[], ADD COLUMN slots integer;
