"""The leases to which a claim gives what it takes, and the parts of its statement that are about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioqueue.postgres._events_log import logged_by
from aioqueue.postgres._rows import CLAIMED_COLUMNS
from aioqueue.vocabulary._event_log import EventKind

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ALL_VALID", "LOGGED", "OWNERS", "Owners", "claimed"]

# The largest integer: a count that has got there (by way of somebody's SQL) must not fail its neighbours. Attempts stay at it;
# claims begin anew, since a fence only has to differ from the ones before.
_LARGEST_COUNT = 2_147_483_647

# The leases are locked so that they can't end while the claim is under way: what ends one sees all that it holds. The first
# one owns what is taken, but for the types that have another one.
OWNERS = """owner AS MATERIALIZED (
    SELECT l.id FROM @schema@.lease l WHERE l.id = ANY($1::bigint[]) AND l.expires_at > now() FOR KEY SHARE
)"""
ALL_VALID = "(SELECT count(*) FROM owner) = cardinality($1::bigint[])"
_CLAIMED_TEMPLATE = f"""claimed AS (
    UPDATE @schema@.job j
    SET state = 2, attempt = least(j.attempt, {_LARGEST_COUNT - 1}) + 1,
        claims = CASE j.claims WHEN {_LARGEST_COUNT} THEN 1 ELSE j.claims + 1 END,
        lease_id = coalesce((@of_types@::bigint[])[array_position(@types@::text[], j.type)], ($1::bigint[])[1]),
        started_at = now()@origin@
    WHERE j.id = ANY(ARRAY(SELECT id FROM picked))
    RETURNING {CLAIMED_COLUMNS}
)"""


LOGGED = f"""(
    SELECT ({logged_by(f"log_live('{EventKind.STARTED}', ARRAY(SELECT id FROM claimed))")}) AS done OFFSET 0) AS logged"""
"""One row, by which what was claimed is logged: where `logged.done IS NULL`, which it is, is asked for."""


# What isn't an object of plain values, as `Origin.encode` makes it, was written by hand: it counts as nothing. Of several
# values the last one counts in JSON.
_DRY = r""", origin = CASE
            WHEN j.origin ~ '^\{("[a-z_]+":("([^"\\[:cntrl:]]|\\["\\/bfnrt])*"|true|false|null)(,(?="))?)+\}$'
            THEN left(j.origin, -1) || ',"dry_run":true}' ELSE '{"dry_run":true}' END"""


def claimed(types: str, of_types: str, *, dry_run: bool = False, also: str = "") -> str:
    """Give the part of a claim that takes the jobs of `picked`.

    Arguments:
        types, of_types: The parameters for `Owners.types` and `Owners.of_types`, such as `$8`.
        dry_run: Whether they're dry runs from now on.
        also: What else is set, with a comma before it.
    """
    template = _CLAIMED_TEMPLATE.replace("@origin@", also + (_DRY if dry_run else ""))
    return template.replace("@types@", types).replace("@of_types@", of_types)


@dataclass(frozen=True, slots=True)
class Owners:
    """The leases of one claim, as the statement takes them.

    Attributes:
        leases: All of them, without repetition, that of most types first.
        types, of_types: The types that have another one, and which.
    """

    leases: list[int]
    types: list[str]
    of_types: list[int]

    @classmethod
    def of(cls, lease_id: int, leases: Mapping[str, int]) -> Owners:
        """Take them from the arguments of `Store.claim`."""
        return cls(list(dict.fromkeys((lease_id, *leases.values()))), list(leases), list(leases.values()))
