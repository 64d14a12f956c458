-- oldest code: 3
-- A chain's steps in their order: the last one, and pages of them, are found in one step however long the chain is.

DROP INDEX job_chain;
CREATE INDEX job_chain ON job (chain_id, position) WHERE chain_id IS NOT NULL;

DROP INDEX archive_chain;
CREATE INDEX archive_chain ON archive (chain_id, position) WHERE chain_id IS NOT NULL;
