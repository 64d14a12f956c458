"""The triggers that log what happens to jobs, whoever writes it: there only while somebody reads the log.

They see rows, not verbs. What the rows alone don't tell is told by the columns that a statement names:

- Whoever takes a live job, gives it back, lets it wait no more or changes when it's due sets `lease_id`, also to NULL where it
  is NULL; nothing else does, but for a job with a lease of its own, which goes on running.
- Whoever lets another job take the place of a waiting one sets `payload`; nothing else does.
- A job comes into the archive before it's deleted, and back before it's deleted there.

Rows may be odd: nothing here raises, as that would keep them from being written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.sqlite._rows_times import NOW
from aioqueue.store_rules._events import MESSAGE_CHARACTERS

if TYPE_CHECKING:
    from aioqueue.sqlite._connections_statements import Statements

__all__ = ["WATCHED", "create_triggers", "drop_triggers", "stop_logging"]

WATCHED = f"EXISTS (SELECT 1 FROM reader WHERE expires_at > {NOW})"

_INTO = "INSERT INTO event (kind, at, job_id, chain_id, job_type, attempt, claims, body)"


def _integer(column: str) -> str:
    return f"iif(typeof({column}) = 'integer', {column}, 0)"


def _whose(row: str) -> str:
    """The columns of an event that are a job's, from a row of it."""
    ids = f"CAST({row}.id AS TEXT), CAST(coalesce({row}.chain_id, {row}.id) AS TEXT), CAST({row}.type AS TEXT)"
    return f"{NOW}, {ids}, {_integer(f'{row}.attempt')}, {_integer(f'{row}.claims')}"


def _error(row: str, before: str) -> str:
    """The newest error in a row as JSON, if it wasn't there before; null where it has none."""
    told = ", ".join(
        f"'{name}', coalesce(substr(CAST(json_extract({row}.errors, '$[#-1].{name}') AS TEXT), 1, {length}), '')"
        for name, length in (("type", 200), ("message", MESSAGE_CHARACTERS))
    )
    new = f"{row}.errors IS NOT {before} AND typeof({row}.errors) = 'text' AND json_valid({row}.errors)"
    return f"json(iif({new}, json_object({told}), 'null'))"


_DELAY = f"iif(typeof(NEW.run_at) = 'integer', max(0.0, (NEW.run_at - {NOW}) / 1000000.0), 0.0)"
_OUTCOME = "CAST({0}.outcome AS TEXT)"
_OF_ARCHIVED = "(SELECT errors FROM job WHERE job.id = NEW.id)"

_STORED = f"""
    {_INTO} SELECT 'continued', {_whose("done")}, json_object('next_id', NEW.id, 'outcome', {_OUTCOME.format("done")})
    FROM archive AS done
    WHERE NEW.position > 0 AND done.id = (
            SELECT id FROM archive WHERE chain_id = NEW.chain_id AND position = NEW.position - 1
            UNION ALL SELECT id FROM archive WHERE id = NEW.chain_id AND chain_id IS NULL AND NEW.position = 1)
        AND done.state = 5 AND NOT EXISTS (SELECT 1 FROM archive WHERE archive.id = NEW.id);
    {_INTO} SELECT
        CASE WHEN NEW.state = 0 THEN 'blocked' WHEN EXISTS (SELECT 1 FROM archive WHERE archive.id = NEW.id) THEN 'retrying'
             ELSE 'enqueued' END,
        {_whose("NEW")},
        iif(NEW.state <> 0 AND EXISTS (SELECT 1 FROM archive WHERE archive.id = NEW.id),
            json_object('delay', {_DELAY}, 'error', NULL), '{{}}');"""

_REPLACED = f"{_INTO} SELECT iif(NEW.state = 0, 'blocked', 'enqueued'), {_whose('NEW')}, '{{}}';"

_IS_SETTLED = "NEW.settled_claims IS NEW.claims"

# What has stood at a gate, and is put off, has waited for nobody.
_IS_UNBLOCKED = "OLD.state = 0 AND NEW.state = 1 AND OLD.gate IS NULL"

_MOVED = f"""
    {_INTO} SELECT 'reaped', {_whose("OLD")}, '{{}}' WHERE OLD.state = 2 AND {_IS_SETTLED} AND NEW.settled_kind >= 100;
    {_INTO} SELECT
        CASE WHEN NEW.state = 2 THEN 'started' WHEN {_IS_UNBLOCKED} THEN 'unblocked'
             WHEN OLD.state = 2 AND {_IS_SETTLED} AND NEW.settled_kind % 100 = 8 THEN 'retrying' ELSE 'rescheduled' END,
        {_whose("NEW")},
        CASE WHEN NEW.state = 2 OR ({_IS_UNBLOCKED}) THEN '{{}}'
             WHEN OLD.state = 2 AND {_IS_SETTLED} AND NEW.settled_kind % 100 = 8
             THEN json_object('delay', {_DELAY}, 'error', {_error("NEW", "OLD.errors")})
             ELSE json_object('delay', {_DELAY}) END;"""

_ARCHIVED = f"""
    {_INTO} SELECT 'reaped', {_whose("NEW")}, '{{}}' WHERE NEW.settled_kind >= 100;
    {_INTO} SELECT
        CASE NEW.state WHEN 4 THEN 'completed' WHEN 7 THEN 'cancelled' ELSE 'failed' END, {_whose("NEW")},
        iif(NEW.state = 4, json_object('outcome', {_OUTCOME.format("NEW")}),
            json_object('error', {_error("NEW", _OF_ARCHIVED)}))
    WHERE NEW.state <> 5;"""

_DELETED = f"{_INTO} SELECT 'deleted', {_whose('OLD')}, '{{}}';"
_IS_OURS = "typeof(OLD.id) = 'text' AND length(OLD.id) = 36"

_PHASE = f"""{_INTO} SELECT iif(NEW.state = 2, 'phase_started', 'phase_completed'), {_whose("job")},
    json_object('phase', NEW.name) FROM job WHERE job.id = NEW.job_id;"""

_PROGRESS = f"""{_INTO} SELECT 'progress', {_whose("job")},
    json_object('percent', NEW.percent, 'message', NEW.message, 'phase', NEW.phase) FROM job WHERE job.id = NEW.job_id;"""

_TRIED = f"""{_INTO} SELECT iif(NEW.state = 4, 'delivered', 'undelivered'), {NOW}, NEW.job_id, NEW.chain_id,
    CAST(NEW.job_type AS TEXT), 0, 0, json_object('status', {"iif(typeof(NEW.status) = 'integer', NEW.status, NULL)"});"""

_CHANGES = "(OLD.state <> NEW.state OR (NEW.state < 2 AND NEW.run_at IS NOT OLD.run_at))"

_TRIGGERS = {
    "stored": ("INSERT ON job", "true", _STORED),
    "replaced": ("UPDATE OF payload ON job", "true", _REPLACED),
    "moved": ("UPDATE OF lease_id ON job", _CHANGES, _MOVED),
    "archived": ("INSERT ON archive", "true", _ARCHIVED),
    "deleted": ("DELETE ON job", f"{_IS_OURS} AND NOT EXISTS (SELECT 1 FROM archive WHERE id = OLD.id)", _DELETED),
    "removed": ("DELETE ON archive", f"{_IS_OURS} AND NOT EXISTS (SELECT 1 FROM job WHERE id = OLD.id)", _DELETED),
    "phase_begun": ("INSERT ON phase", "NEW.state IN (2, 4)", _PHASE),
    "phase_written": ("UPDATE ON phase", "NEW.state IN (2, 4)", _PHASE),
    "progress_begun": ("INSERT ON progress", "true", _PROGRESS),
    "progress_written": ("UPDATE ON progress", "true", _PROGRESS),
    "tried": ("UPDATE OF state ON delivery", "OLD.state = 1 AND NEW.state IN (4, 6)", _TRIED),
}

_PREFIX = "aioqueue_event_"

_THERE = f"SELECT name FROM sqlite_master WHERE type = 'trigger' AND substr(name, 1, {len(_PREFIX)}) = '{_PREFIX}'"


def create_triggers(connection: Statements) -> None:
    """Have it logged from now on; in a write transaction. Those that are there are made anew if they differ."""
    wanted = {
        f"{_PREFIX}{name}": f"CREATE TRIGGER {_PREFIX}{name} AFTER {when} WHEN {condition} AND {WATCHED} BEGIN {body} END"
        for name, (when, condition, body) in _TRIGGERS.items()
    }
    there = dict(connection.execute(_THERE.replace("name", "name, sql", 1)).fetchall())
    if there == wanted:
        return
    drop_triggers(connection)
    for statement in wanted.values():
        connection.execute(statement)


def drop_triggers(connection: Statements) -> bool:
    """Log nothing any more; in a write transaction. Returns whether something was logged."""
    names = connection.execute(_THERE).fetchall()
    for (name,) in names:
        connection.execute(f'DROP TRIGGER "{name}"')
    return bool(names)


def stop_logging(connection: Statements) -> None:
    """Do the same before the tables change, which triggers could keep them from: whoever reads has to begin anew."""
    if drop_triggers(connection):
        connection.execute("DELETE FROM reader")
