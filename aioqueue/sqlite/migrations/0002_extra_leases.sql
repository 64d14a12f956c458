-- oldest code: 1
-- A worker with several leases counts once: the others are extra.

ALTER TABLE lease ADD COLUMN extra INTEGER NOT NULL DEFAULT 0;
