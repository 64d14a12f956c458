-- oldest code: 3
-- By which finished jobs are pruned.

CREATE INDEX archive_finished ON archive (state, finished_at, id);
