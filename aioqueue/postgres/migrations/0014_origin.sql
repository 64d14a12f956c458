-- oldest code: 6
-- Where jobs come from, beside whoever enqueued them: the tick of a schedule, or a dry run; and workers of which only one may live.
-- Code from before goes on; it forgets where a chain comes from when it continues one.

ALTER TABLE @schema@.job ADD COLUMN origin text;            -- JSON; NULL for most
ALTER TABLE @schema@.archive ADD COLUMN origin text;
ALTER TABLE @schema@.lease ADD COLUMN singleton text;

CREATE UNIQUE INDEX lease_singleton ON @schema@.lease (singleton) WHERE singleton IS NOT NULL;
