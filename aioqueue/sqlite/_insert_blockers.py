"""For which chains new jobs wait: whether those live, and are marked, or have ended. Inside an open write transaction.

Nobody can end a chain in between: the transaction holds the write lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioqueue.errors import BlockerNotFound
from aioqueue.sqlite._resolve_ends import End, archived_ends, store_ends, stored_states
from aioqueue.sqlite._rows import dump, load
from aioqueue.sqlite._rows_chain import LAST_STEPS
from aioqueue.store_rules._unique_keys import TAKEN_OVER_ORDINAL
from aioqueue.vocabulary._blockers import ChainEnd

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.vocabulary._blockers import NewBlocker

__all__ = ["Waiting", "add_blockers", "mark_living", "waits_for_itself"]

_MARK = f"""
WITH {LAST_STEPS}
UPDATE job SET marked = 1 WHERE id IN (SELECT live FROM step WHERE live IS NOT NULL)
"""

_CHAINS = f"""
WITH {LAST_STEPS}
SELECT json_group_array(json_array(place, CAST(chain AS TEXT), live IS NOT NULL)) FROM step
"""

_ADD = """
INSERT INTO blocker (job_id, ordinal, chain_id, settled, places)
SELECT n.value ->> 0, n.value ->> 1, n.value ->> 2, n.value ->> 3, n.value ->> 4 FROM json_each(:rows) AS n
"""

_FORGET = "DELETE FROM blocker WHERE job_id IN (SELECT value FROM json_each(:jobs))"
"""What is left of jobs with the same ids that somebody has deleted with SQL."""

_REACHES = """
WITH RECURSIVE awaited(chain_id) AS (
    SELECT chain_id FROM blocker WHERE job_id = :job AND resolved = 0
    UNION
    SELECT b.chain_id FROM awaited CROSS JOIN job INDEXED BY job_chain ON job.chain_id = awaited.chain_id
    CROSS JOIN blocker AS b ON b.job_id = job.id AND b.resolved = 0
    UNION
    SELECT b.chain_id FROM awaited CROSS JOIN job ON job.id = awaited.chain_id AND job.chain_id IS NULL
    CROSS JOIN blocker AS b ON b.job_id = job.id AND b.resolved = 0)
SELECT EXISTS (SELECT 1 FROM awaited WHERE chain_id = :chain)
"""

_UNTOLD = "UPDATE chain_end SET untold = 1 WHERE chain_id IN (SELECT value FROM json_each(:chains))"


@dataclass(frozen=True, slots=True)
class Waiting:
    """A live job, and the chains for which it waits.

    Attributes:
        job_id: Its id, as it's stored.
        blockers: Those that were given.
        taken_over: The chain from which it has taken its unique key over, as it's stored: it waits for that one too.
        there: Whether it was there already, and may wait for another chain for such a reason.
    """

    job_id: str
    blockers: Sequence[NewBlocker]
    taken_over: str | None = None
    there: bool = False


def mark_living(connection: Statements, chains: list[str]) -> set[str]:
    """Mark the live steps of those of the chains, by their own ids, that live; and tell which those are."""
    asked = {"ids": dump(chains)}
    connection.execute(_MARK, asked)
    found: list[tuple[int, str, int]] = load(connection.execute(_CHAINS, asked).fetchone()[0])
    return {chains[place] for place, _, lives in found if lives}


def add_blockers(
    connection: Statements,
    waiting: Sequence[Waiting],
    known: Mapping[UUID, UUID],
    created: set[UUID],
    now: int,
) -> list[str]:
    """Write for which chains jobs wait that were inserted as blocked, and mark those that they wait for.

    Arguments:
        connection: In a write transaction.
        waiting: The jobs.
        known: Under which ids jobs of the same batch are stored, by their own: one may stand for a chain that holds its key.
        created: Those of them that were stored by it, each as the first step of its chain.
        now: The database's time.

    Returns:
        The chains among those that have ended, and whose ends are stored now.

    Raises:
        BlockerNotFound: One of them isn't there.
    """
    wanted = {each.chain_id for job in waiting for each in job.blockers} - created
    # One of the batch that stands for another isn't marked yet.
    found = _Found.look(connection, sorted({known.get(each, each) for each in wanted}, key=str))
    rows: list[list[object]] = []
    for job in waiting:
        for ordinal, each in enumerate(job.blockers):
            stored = known.get(each.chain_id, each.chain_id)
            chain = str(stored) if stored in created else found.chains.get(stored)
            if chain is None:
                raise BlockerNotFound(
                    f"job {job.job_id} can't wait for {each.chain_id}, which isn't there: it was never committed, or was "
                    "deleted",
                    blocker_id=each.chain_id,
                )
            rows.append([job.job_id, ordinal, chain, int(each.settled), each.places.decode()])
        if job.taken_over is not None:
            rows.append([job.job_id, TAKEN_OVER_ORDINAL, job.taken_over, 1, "[]"])
    connection.execute(_FORGET, {"jobs": dump([job.job_id for job in waiting if not job.there])})
    connection.execute(_ADD, {"rows": dump(rows)})
    # Only now, since an end is stored only if somebody waits for it.
    store_ends(connection, found.ends, now)
    connection.execute(_UNTOLD, {"chains": dump(found.kept)})
    return [*(end.chain_id for end in found.ends), *found.kept]


def waits_for_itself(connection: Statements, job_id: str, chain: str) -> bool:
    """Whether a live job waits for this chain, its own, through whatever other chains. Nobody can add to them meanwhile."""
    return bool(connection.execute(_REACHES, {"job": job_id, "chain": chain}).fetchone()[0])


@dataclass(frozen=True, slots=True)
class _Found:
    """Chains that were stored before.

    Attributes:
        chains: Their ids as they're stored, by the ids of steps; without those that aren't there.
        ends: How those ended that have.
        kept: Those that have ended, of which nothing is left but that.
    """

    chains: dict[UUID, str]
    ends: list[End]
    kept: list[str]

    @classmethod
    def look(cls, connection: Statements, ids: Sequence[UUID]) -> _Found:
        """Find them, and mark those that live."""
        if not ids:
            return cls({}, [], [])
        asked = {"ids": dump([str(each) for each in ids])}
        connection.execute(_MARK, asked)
        chains: dict[UUID, str] = {}
        dead: dict[str, list[UUID]] = {}
        found: list[tuple[int, str, int]] = load(connection.execute(_CHAINS, asked).fetchone()[0])
        for place, chain, lives in found:
            if lives:
                chains[ids[place]] = chain
            else:
                dead.setdefault(chain, []).append(ids[place])
        names = list(dead)
        ends = dict(zip(names, archived_ends(connection, names), strict=True)) if names else {}
        gone = [name for name in names if ends[name] is None]
        states = stored_states(connection, gone) if gone else {}
        kept = {name for name, state in states.items() if state != ChainEnd.DELETED}
        for name, steps in dead.items():
            if ends[name] is not None or name in kept:
                chains |= dict.fromkeys(steps, name)
        return cls(chains, [end for end in ends.values() if end is not None], sorted(kept))
