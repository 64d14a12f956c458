"""Looking at who waits for what. The functions run in a reader's thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioqueue.sqlite._rows import dump, text_of
from aioqueue.sqlite._rows_chain import LAST_STEPS
from aioqueue.sqlite._rows_ids import id_of
from aioqueue.sqlite._rows_times import NOW
from aioqueue.store_rules._states import shown_state
from aioqueue.vocabulary._blockers import Blocker

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from aioqueue.sqlite._connections_statements import Statements

__all__ = ["list_blockers", "list_dependents"]

_BLOCKERS = """
SELECT job_id, ordinal, chain_id, settled, resolved FROM blocker
WHERE job_id = :job AND ordinal > :after ORDER BY ordinal LIMIT :limit
"""

_DEPENDENTS = """
SELECT job_id, ordinal, chain_id, settled, resolved FROM blocker AS b INDEXED BY blocker_chain
WHERE chain_id = :chain AND resolved = 0
    AND EXISTS (SELECT 1 FROM job WHERE job.id = b.job_id)
ORDER BY job_id, ordinal LIMIT :limit
"""

_STEPS = f"""
WITH {LAST_STEPS}
SELECT place, coalesce(job.type, archive.type), coalesce(job.state, archive.state), live IS NULL, job.run_at <= {NOW},
    job.open_blockers = 0
FROM step LEFT JOIN job ON job.id = step.live LEFT JOIN archive ON archive.id = step.archived
WHERE coalesce(live, archived) IS NOT NULL
"""


def list_blockers(connection: Statements, job_id: UUID, limit: int, after: int) -> list[Blocker]:
    """What a job waits for, or has waited for, as `aioqueue.abc.Store.list_blockers` says."""
    asked = {"job": str(job_id), "after": after, "limit": limit}
    return _shown(connection, connection.execute(_BLOCKERS, asked).fetchall())


def list_dependents(connection: Statements, chain_id: UUID, limit: int) -> list[Blocker]:
    """Who waits for a chain, as `aioqueue.abc.Store.list_dependents` says."""
    return _shown(connection, connection.execute(_DEPENDENTS, {"chain": str(chain_id), "limit": limit}).fetchall())


def _shown(connection: Statements, rows: Sequence[Any]) -> list[Blocker]:
    chains = list(dict.fromkeys(row[2] for row in rows))
    steps = {
        chains[place]: (text_of(job_type), shown_state(state, archived=bool(archived), due=bool(due), blocked=not held))
        for place, job_type, state, archived, due, held in connection.execute(_STEPS, {"ids": dump(chains)}).fetchall()
    }
    return [
        Blocker(
            job_id=id_of(job_id),
            ordinal=ordinal,
            chain_id=id_of(chain),
            settled=bool(settled),
            resolved=bool(resolved),
            type=steps[chain][0] if chain in steps else None,
            state=steps[chain][1] if chain in steps else None,
        )
        for job_id, ordinal, chain, settled, resolved in rows
    ]
