"""The triggers that see jobs leave gates, whoever has them do so: there only once a job has been at a gate in this file.

Whatever a job at gates does but begin to run leaves marks. One that is held at another gate of its own keeps its turn in its
sequence. Others, and the files in which there are no others, pay nothing for it.

Whoever first writes a job that has anything to do with gates creates them in the same transaction. It may be a user's, on a
connection of theirs, so they are created by statements that do nothing where they are there. Migrations make them anew: where
one of them is changed, there has to be a migration.

Rows may be odd: nothing here raises, as that would keep them from being written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioqueue.sqlite._connections_statements import Statements

__all__ = ["CREATE_GATE_TRIGGERS", "create_gate_triggers", "drop_gate_triggers"]

_CHAIN = "coalesce(OLD.chain_id, OLD.id)"
_MARK_SEQUENCE = f"INSERT INTO gate_mark (gate) SELECT 'sequence=' || sequence FROM gate_member WHERE chain_id = {_CHAIN}"
_MARK_GATES = """INSERT INTO gate_mark (gate)
        SELECT value FROM json_each(iif(json_valid(OLD.gates), OLD.gates, '[]'))
        WHERE OLD.state IN (1, 2) AND typeof(value) = 'text'"""

_DELETED = f"""
    DELETE FROM gate_place WHERE job_id = OLD.id;
    {_MARK_GATES};
    {_MARK_SEQUENCE};
    UPDATE gate_member SET ended = coalesce((SELECT state FROM archive WHERE id = OLD.id AND state IN (6, 7)), 0)
        WHERE chain_id = {_CHAIN};
    DELETE FROM gate_member
        WHERE chain_id = {_CHAIN} AND NOT EXISTS (SELECT 1 FROM archive WHERE id = OLD.id AND state IN (5, 6, 7));"""

_MOVED = f"""
    DELETE FROM gate_place WHERE job_id = OLD.id AND OLD.state = 2;
    {_MARK_GATES} AND (NEW.state <> 0 OR NEW.gate IS NOT value);
    {_MARK_SEQUENCE}
        AND ((OLD.state IN (1, 2) AND (NEW.state <> 0 OR NEW.gate IS NULL OR substr(NEW.gate, 1, 6) = 'pause:'))
             OR NEW.run_at > OLD.run_at);"""

_LEFT_ARCHIVE = f"""
    {_MARK_SEQUENCE} AND ended = 6 AND block = 1;
    DELETE FROM gate_member WHERE chain_id = {_CHAIN} AND ended <> 0;"""

# What is paused changes whose turn it is in sequences: one mark says that all those are looked at in which somebody waits.
_PAUSED = "INSERT INTO gate_mark (gate) VALUES ('pause:');"
_ANY_MEMBER = "EXISTS (SELECT 1 FROM gate_member)"

_TRIGGERS = {
    "deleted": ("DELETE ON job", "OLD.gates IS NOT NULL", _DELETED),
    "moved": (
        "UPDATE OF state, run_at ON job",
        "OLD.gates IS NOT NULL AND NEW.state <> 2 AND (OLD.state <> NEW.state OR NEW.run_at > OLD.run_at)",
        _MOVED,
    ),
    "paused": ("INSERT ON pause", _ANY_MEMBER, _PAUSED),
    "resumed": ("DELETE ON pause", _ANY_MEMBER, _PAUSED),
    "pause_changed": ("UPDATE ON pause", _ANY_MEMBER, _PAUSED),
    "left_archive": ("DELETE ON archive", "OLD.state IN (6, 7)", _LEFT_ARCHIVE),
}

_PREFIX = "aioqueue_gate_"

CREATE_GATE_TRIGGERS = tuple(
    f"CREATE TRIGGER IF NOT EXISTS {_PREFIX}{name} AFTER {when} WHEN {condition} BEGIN {body} END"
    for name, (when, condition, body) in _TRIGGERS.items()
)
"""In a write transaction, before the first job in it that has to do with gates is written."""

_THERE = f"SELECT name FROM sqlite_master WHERE type = 'trigger' AND substr(name, 1, {len(_PREFIX)}) = '{_PREFIX}'"


def create_gate_triggers(connection: Statements) -> None:
    """Have jobs leave marks from now on, in a write transaction."""
    for statement in CREATE_GATE_TRIGGERS:
        connection.execute(statement)


def drop_gate_triggers(connection: Statements) -> bool:
    """Do away with them before the tables change, which they could keep them from. Returns whether there were any."""
    names = connection.execute(_THERE).fetchall()
    for (name,) in names:
        connection.execute(f'DROP TRIGGER "{name}"')
    return bool(names)
