"""The look at what there is to tend: see `_tend`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aioqueue.postgres._gates_sweep import Swept
from aioqueue.postgres._tend_over import OVER
from aioqueue.postgres._tend_requests import REQUESTS_LEFT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from aioqueue.errors import StoreError

__all__ = ["LOOK", "LOOK_BRIEFLY", "MOST_CHAINS", "NEVER_STARTED", "Look"]

MOST_CHAINS = 200
"""Ends of chains that one transaction tells of at most."""

NEVER_STARTED = """j.expires_at IS NOT NULL AND j.state < 2 AND j.attempt = 0 AND j.reschedules = 0
          AND j.expires_at <= now()"""

# Each is looked up by itself: where the planner believes that a table is empty, a join would read all of it for each.
# An end that is still being told of is found as such. One that isn't, with somebody waiting and no live step, was written
# by nobody who knew of those that wait: it's looked at anew.
LOOK = f"""WITH edge AS MATERIALIZED (
    SELECT b.chain_id, b.job_id, b.resolved FROM @schema@.blocker b
    WHERE (b.chain_id, b.job_id) > ($1::uuid, $2::uuid) ORDER BY b.chain_id, b.job_id LIMIT $5::integer
), awaited AS MATERIALIZED (
    SELECT DISTINCT chain_id FROM edge WHERE NOT resolved
), job_edge AS MATERIALIZED (
    SELECT b.job_id FROM @schema@.blocker b WHERE b.job_id > $3::uuid ORDER BY b.job_id LIMIT $5::integer
), ended AS MATERIALIZED (
    SELECT e.chain_id, e.untold FROM @schema@.chain_end e WHERE e.chain_id > $4::uuid ORDER BY e.chain_id LIMIT $5::integer
)
SELECT EXISTS (SELECT FROM @schema@.chain_end e WHERE e.untold) AS untold,
       EXISTS (SELECT FROM @schema@.job j WHERE {NEVER_STARTED}) AS late,
       {OVER} AS over,
       {REQUESTS_LEFT} AS asked,
       ARRAY(SELECT chain_id FROM awaited
             WHERE (SELECT true FROM @schema@.job j WHERE j.id = awaited.chain_id LIMIT 1) IS NULL
               AND (SELECT true FROM @schema@.job j WHERE j.chain_id = awaited.chain_id LIMIT 1) IS NULL
               AND (SELECT true FROM @schema@.chain_end e WHERE e.chain_id = awaited.chain_id AND e.untold LIMIT 1) IS NULL
             LIMIT {MOST_CHAINS}) AS lost,
       ARRAY(SELECT job_id FROM (SELECT DISTINCT job_id FROM job_edge) AS waiting
             WHERE (SELECT true FROM @schema@.job j WHERE j.id = waiting.job_id LIMIT 1) IS NULL
               AND (SELECT true FROM @schema@.archive a WHERE a.id = waiting.job_id AND a.state IN (6, 7) LIMIT 1) IS NULL)
           AS unneeded,
       ARRAY(SELECT chain_id FROM ended
             WHERE (SELECT true FROM @schema@.blocker b WHERE b.chain_id = ended.chain_id LIMIT 1) IS NULL) AS forgotten,
       (SELECT chain_id FROM edge ORDER BY chain_id DESC, job_id DESC LIMIT 1) AS last_edge_chain,
       (SELECT job_id FROM edge ORDER BY chain_id DESC, job_id DESC LIMIT 1) AS last_edge_job,
       (SELECT count(*) FROM edge) AS edges,
       (SELECT job_id FROM job_edge ORDER BY job_id DESC LIMIT 1) AS last_job, (SELECT count(*) FROM job_edge) AS job_edges,
       (SELECT chain_id FROM ended ORDER BY chain_id DESC LIMIT 1) AS last_end, (SELECT count(*) FROM ended) AS ends"""
LOOK_BRIEFLY = f"""SELECT EXISTS (SELECT FROM @schema@.chain_end e WHERE e.untold),
       EXISTS (SELECT FROM @schema@.job j WHERE {NEVER_STARTED}),
       {OVER},
       {REQUESTS_LEFT}"""


@dataclass(slots=True)
class Look:
    """What there is to do.

    Attributes:
        untold: Whether ends of chains are still to be told.
        late: Whether jobs have expired that nobody has started.
        over: What is over by its time: see `OVER`.
        asked: Whether requests to end are left.
        lost: Chains for which somebody waits that aren't live, and of whose ends nobody is telling.
        unneeded: Jobs whose edges nobody needs.
        forgotten: Chains for whose ends nobody waits any more.
        free: Keys that aren't paused and of which jobs are parked.
        swept: What there is to do at gates.
        trouble: What has gone wrong with some of the looks, which keeps no other work from being done.
    """

    untold: bool = False
    late: bool = False
    over: Sequence[str] = ()
    asked: bool = False
    lost: Sequence[UUID] = ()
    unneeded: Sequence[UUID] = ()
    forgotten: Sequence[UUID] = ()
    free: Sequence[str] = ()
    swept: Swept = field(default_factory=Swept)
    trouble: list[StoreError] = field(default_factory=list["StoreError"])

    @property
    def anything(self) -> bool:
        """Whether there is anything at all."""
        of_chains = self.untold or self.lost or self.unneeded or self.forgotten
        return bool(of_chains or self.late or self.over or self.asked or self.free or self.swept)
