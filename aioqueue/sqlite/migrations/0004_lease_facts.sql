-- oldest code: 3
-- What a worker says of itself when it opens a lease: since when, which job types are claimed for it (a JSON array), and how
-- many jobs it runs at once. Code from before says nothing of it, which shows as unknown.

ALTER TABLE lease ADD COLUMN opened_at INTEGER;
ALTER TABLE lease ADD COLUMN types TEXT;
ALTER TABLE lease ADD COLUMN slots INTEGER;
