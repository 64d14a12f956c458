-- oldest code: 3
-- A unique key is hashed as in PostgreSQL, by SHA-256, and stored as the text of a UUID. Before, it was BLAKE2b, 32 digits.
--
-- Code from before looks for the old hash only. So it can't be started any more; and where it still runs, what it enqueues
-- with a unique key is refused, with a reason, instead of stored a second time. All else that it does goes on.

-- Where two rows come to the same hash one keeps it, and the other does without: the index takes only one.
UPDATE OR IGNORE job
SET unique_key = aioqueue_unique_key(CAST(type AS BLOB), CAST(key AS BLOB), CAST(unique_key AS BLOB), (
    SELECT CAST(json_group_array(type) AS BLOB) FROM (
        SELECT type FROM job WHERE typeof(type) = 'text' UNION SELECT type FROM archive WHERE typeof(type) = 'text')))
WHERE unique_key IS NOT NULL;

UPDATE job SET unique_key = NULL WHERE unique_key IS NOT NULL AND length(unique_key) <> 36;

-- Failed and cancelled jobs come back when they're retried; nobody reads the keys of others.
UPDATE archive
SET unique_key = aioqueue_unique_key(CAST(type AS BLOB), CAST(key AS BLOB), CAST(unique_key AS BLOB), (
    SELECT CAST(json_group_array(type) AS BLOB) FROM (
        SELECT type FROM job WHERE typeof(type) = 'text' UNION SELECT type FROM archive WHERE typeof(type) = 'text')))
WHERE unique_key IS NOT NULL AND state IN (6, 7);

-- A check comes into a table only with a column; nothing is kept in this one. A trigger costs every insert a twentieth (tried).
ALTER TABLE job ADD COLUMN unique_key_check INTEGER
    CONSTRAINT "a newer aioqueue has migrated this database: upgrade aioqueue here to enqueue jobs with unique keys"
    CHECK (length(unique_key) = 36);
