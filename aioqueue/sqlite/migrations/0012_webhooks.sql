-- oldest code: 7
-- What is sent to those who are told of chains' ends: written with the end, and kept with how that went.
--
-- Jobs with a webhook are marked, so that only they cost more. Code from before ends such a job without telling anybody: upgrade
-- all workers before the first job is enqueued with a webhook.

CREATE TABLE delivery (
    id          TEXT    NOT NULL PRIMARY KEY CHECK (typeof(id) = 'text' AND length(id) = 36),
    job_id      TEXT    NOT NULL CHECK (typeof(job_id) = 'text'),
    chain_id    TEXT    NOT NULL CHECK (typeof(chain_id) = 'text'),
    job_type    TEXT    NOT NULL,
    event       TEXT    NOT NULL,
    url         TEXT    NOT NULL CHECK (typeof(url) = 'text'),
    host        TEXT    NOT NULL CHECK (typeof(host) = 'text'),      -- whose limit counts
    body        BLOB    NOT NULL CHECK (typeof(body) = 'blob'),      -- exactly what is sent
    state       INTEGER NOT NULL DEFAULT 1 CHECK (state IN (1, 4, 6)),  -- 1 pending, 4 delivered, 6 failed
    tries       INTEGER NOT NULL DEFAULT 0 CHECK (typeof(tries) = 'integer'),
    created_at  INTEGER NOT NULL CHECK (typeof(created_at) = 'integer'),
    next_at     INTEGER CHECK (next_at IS NULL OR typeof(next_at) = 'integer'),
    status      INTEGER,
    response    TEXT    NOT NULL DEFAULT '' CHECK (typeof(response) = 'text'),
    finished_at INTEGER CHECK (finished_at IS NULL OR typeof(finished_at) = 'integer')
);

CREATE INDEX delivery_due ON delivery (next_at, id) WHERE state = 1;
CREATE INDEX delivery_due_by_host ON delivery (host, next_at, id) WHERE state = 1;
CREATE INDEX delivery_state ON delivery (state, id);
CREATE INDEX delivery_chain ON delivery (chain_id, id);
CREATE INDEX delivery_job ON delivery (job_id);
CREATE INDEX delivery_finished ON delivery (finished_at) WHERE finished_at IS NOT NULL;
