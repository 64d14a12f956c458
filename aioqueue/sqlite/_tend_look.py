"""What no worker's claim leads to: found in a snapshot, so that nobody waits for the write lock where there is nothing to do.

Tables are walked in portions, one after the other with each call, and from the beginning again after their ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioqueue.sqlite._rows import dump, load, one
from aioqueue.sqlite._rows_times import NOW
from aioqueue.sqlite._tend_old import any_old

if TYPE_CHECKING:
    from collections.abc import Collection

    from aioqueue.sqlite._connections_statements import Statements

__all__ = ["ASKED", "DONE_WITH", "LATE", "LOST", "NEEDLESS", "OVER", "Found", "Places", "look"]

_WALK = 20_000
"""Chains, jobs and ends at which one call looks, each: up to a tenth of a second, in a reader's thread."""

_UNTOLD = """
SELECT json_group_array(chain_id) FROM (
    SELECT chain_id FROM chain_end AS e INDEXED BY chain_end_untold
    WHERE untold = 1 AND (:skip = '[]'
        OR EXISTS (SELECT 1 FROM blocker AS b WHERE b.chain_id = e.chain_id AND b.resolved = 0
                   AND b.job_id NOT IN (SELECT value FROM json_each(:skip)))
        OR NOT EXISTS (SELECT 1 FROM blocker AS b WHERE b.chain_id = e.chain_id AND b.resolved = 0))
    ORDER BY ended_at, chain_id LIMIT :limit)
"""
"""Those for which only jobs wait that are passed over would keep the others from being told."""

LATE = f"""job.expires_at IS NOT NULL AND job.state < 2 AND job.attempt = 0 AND job.reschedules = 0
    AND job.expires_at <= {NOW} AND job.started_at IS NULL AND typeof(job.id) = 'text'"""
"""What is to be discarded. An id that isn't text is a matter for claims."""

_LATE = f"""
SELECT json_group_array(id) FROM (
    SELECT id FROM job INDEXED BY job_expiring
    WHERE {LATE} AND id NOT IN (SELECT value FROM json_each(:skip)) ORDER BY expires_at LIMIT :limit)
"""

LOST = """EXISTS (SELECT 1 FROM blocker AS b WHERE b.chain_id = named.chain_id AND b.resolved = 0)
    AND NOT EXISTS (SELECT 1 FROM job INDEXED BY job_chain WHERE job.chain_id = named.chain_id)
    AND NOT EXISTS (SELECT 1 FROM job WHERE job.id = named.chain_id AND job.chain_id IS NULL)
    AND NOT EXISTS (SELECT 1 FROM chain_end AS e WHERE e.chain_id = named.chain_id AND e.untold = 1)"""
"""Chains that have ended, or are gone, without anybody having told those that wait."""

_LOST = f"""
WITH RECURSIVE named(chain_id, place) AS (
    SELECT (SELECT min(chain_id) FROM blocker WHERE chain_id > :after), 1
    UNION ALL
    SELECT (SELECT min(chain_id) FROM blocker WHERE chain_id > named.chain_id), place + 1
    FROM named WHERE chain_id IS NOT NULL AND place < :walk)
SELECT (SELECT max(chain_id) FROM named WHERE place = :walk),
    (SELECT json_group_array(chain_id) FROM named WHERE chain_id IS NOT NULL AND {LOST})
"""

DONE_WITH = """NOT EXISTS (SELECT 1 FROM job WHERE job.id = named.job_id)
    AND NOT EXISTS (SELECT 1 FROM archive WHERE archive.id = named.job_id AND archive.state NOT IN (4, 5))"""
"""Jobs that need nothing any more of what they have waited for."""

_DONE_WITH = f"""
WITH RECURSIVE named(job_id, place) AS (
    SELECT (SELECT min(job_id) FROM blocker WHERE job_id > :after), 1
    UNION ALL
    SELECT (SELECT min(job_id) FROM blocker WHERE job_id > named.job_id), place + 1
    FROM named WHERE job_id IS NOT NULL AND place < :walk)
SELECT (SELECT max(job_id) FROM named WHERE place = :walk),
    (SELECT json_group_array(job_id) FROM named WHERE job_id IS NOT NULL AND {DONE_WITH})
"""

NEEDLESS = "NOT EXISTS (SELECT 1 FROM blocker WHERE blocker.chain_id = named.chain_id)"
"""Ends of which nobody needs to know any more."""

_NEEDLESS = f"""
WITH named(chain_id) AS MATERIALIZED (
    SELECT chain_id FROM chain_end WHERE chain_id > :after ORDER BY chain_id LIMIT :walk)
SELECT (SELECT chain_id FROM named LIMIT 1 OFFSET :walk - 1),
    (SELECT json_group_array(chain_id) FROM named WHERE {NEEDLESS})
"""

ASKED = "job.cancel_reason IS NOT NULL AND job.state <> 2 AND typeof(job.id) = 'text' AND job.id = lower(job.id)"
"""Whose chains were asked to end while they were running, and that aren't any more."""

_ASKED = f"""
SELECT json_group_array(id) FROM (
    SELECT id FROM job INDEXED BY job_asked WHERE {ASKED} AND id NOT IN (SELECT value FROM json_each(:skip)) LIMIT :limit)
"""

OVER = f"expires_at <= {NOW}"

_OVER = f"""
SELECT json_group_array(key) FROM (
    SELECT key FROM dedup INDEXED BY dedup_expiring WHERE {OVER} ORDER BY expires_at LIMIT :limit)
"""


@dataclass(slots=True)
class Places:
    """How far the walks have come: behind these chains, jobs and ends."""

    chain: str = ""
    job: str = ""
    end: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """What there is to do.

    Attributes:
        untold: Chains that have ended, of which some have to be told.
        late: Jobs that have to be discarded.
        lost: Chains that have ended, or are gone, without anybody's having stored that.
        done_with: Jobs that need nothing any more of what they have waited for.
        needless: Chains of whose ends nobody needs to know any more.
        over: Unique keys of which the windows are over.
        asked: Jobs that aren't running, and whose chains were asked to end.
        old: Whether there are rows that were kept for some time, which is over.
        more: Whether there are more of those that somebody waits for, or of keys, which can come faster than in portions.
    """

    untold: list[str]
    late: list[str]
    lost: list[str]
    done_with: list[str]
    needless: list[str]
    over: list[str]
    asked: list[str]
    old: bool
    more: bool = False

    def portion(self, limit: int) -> Found:
        """Of all there is so many at most."""
        return Found(
            self.untold,
            self.late,
            self.lost[:limit],
            self.done_with[:limit],
            self.needless[:limit],
            self.over,
            self.asked,
            self.old,
            more=max(len(self.untold), len(self.late), len(self.over), len(self.asked), len(self.lost) - 1) >= limit,
        )

    @property
    def nothing(self) -> bool:
        """Whether there's nothing to do."""
        lists = (self.untold, self.late, self.lost, self.done_with, self.needless, self.over, self.asked)
        return not (self.old or any(lists))


def look(connection: Statements, places: Places, limit: int, skip: Collection[str]) -> Found:
    """See what there is to do, and move on in the walks."""
    asked = {"limit": limit, "skip": dump(list(skip))}
    statements = (_UNTOLD, _LATE, _OVER, _ASKED)
    untold, late, over, to_end = (load(one(connection, statement, asked)[0]) for statement in statements)
    chain, lost = one(connection, _LOST, {"after": places.chain, "walk": _WALK})
    job, done_with = one(connection, _DONE_WITH, {"after": places.job, "walk": _WALK})
    end, needless = one(connection, _NEEDLESS, {"after": places.end, "walk": _WALK})
    found = Found(untold, late, load(lost), load(done_with), load(needless), over, to_end, any_old(connection))
    # What is more than a portion is found again by the next call, from the same place.
    if len(found.lost) <= limit:
        places.chain = chain or ""
    if len(found.done_with) <= limit:
        places.job = job or ""
    if len(found.needless) <= limit:
        places.end = end or ""
    return found.portion(limit)
