-- oldest code: 7
-- Where jobs come from, beside whoever enqueued them: the tick of a schedule, or a dry run; and workers of which only one may live.
-- Code from before forgets where a chain comes from when it continues one.

ALTER TABLE job ADD COLUMN origin TEXT;                     -- JSON; NULL for most
ALTER TABLE archive ADD COLUMN origin TEXT;
ALTER TABLE lease ADD COLUMN singleton TEXT;

CREATE UNIQUE INDEX lease_singleton ON lease (singleton) WHERE singleton IS NOT NULL;
