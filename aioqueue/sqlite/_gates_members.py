"""Members of sequences: chains that were put in one, in the order in which that was done. Inside an open write transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.errors import RowRejected
from aioqueue.sqlite._gates_triggers import CREATE_GATE_TRIGGERS

if TYPE_CHECKING:
    from aioqueue.vocabulary._gates import SequenceMember
    from aioqueue.vocabulary._job import NewJob

__all__ = ["ENTER", "JOIN", "LEAVE_OTHERS", "member_row"]

JOIN = """
INSERT OR IGNORE INTO gate_member (chain_id, sequence, strict, block)
SELECT value ->> 1, value ->> 2, value ->> 3, value ->> 4 FROM json_each(:rows)
"""
"""A chain that is in one already stays there, in its place."""

_WAIT_AT_SEQUENCE = """
UPDATE job SET gates = '[]' WHERE gates IS NULL AND id IN (SELECT value ->> 0 FROM json_each(:rows))
"""
"""By that plain claims know to leave them."""

ENTER = (*CREATE_GATE_TRIGGERS, JOIN, _WAIT_AT_SEQUENCE)
"""For jobs that are stored: they're in a sequence from then on."""

_OF_OTHERS = """chain_id IN (SELECT value ->> 1 FROM json_each(:rows))
    AND sequence IS NOT (SELECT value ->> 2 FROM json_each(:rows) WHERE value ->> 1 = gate_member.chain_id)"""

LEAVE_OTHERS = (
    f"INSERT INTO gate_mark (gate) SELECT 'sequence=' || sequence FROM gate_member WHERE {_OF_OTHERS}",
    f"DELETE FROM gate_member WHERE {_OF_OTHERS}",
)
"""For those that get what was given for another job: they're in its sequence, or in none."""


def member_row(job: NewJob, job_id: str, chain_id: str, member: SequenceMember | None) -> list[object]:
    """What these statements take of a job.

    Raises:
        RowRejected: The sequence's name can't be stored.
    """
    if member is None:
        return [job_id, chain_id, None]
    if "\0" in member.name:
        raise RowRejected(f"job {job.id}: the name of a sequence can't hold U+0000: {member.name!r}")
    return [job_id, chain_id, member.name, int(member.strict), int(member.block)]
