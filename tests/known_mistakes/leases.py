"""Stores that make mistakes with leases, and with the jobs of lost workers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aioqueue.testing.memory import _lease, _recovery, _settle, _store
from aioqueue.testing.memory._rows import Database
from aioqueue.vocabulary._job import StoredState
from tests.known_mistakes.mistake import Mistake, instead_of
from tests.simulation.database import WatchedDatabase
from tests.simulation.plan import Theme
from tests.simulation.promises import Promise

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from datetime import datetime

    from aioqueue.testing.memory._rows_jobs import Row
    from aioqueue.vocabulary._job import ClaimedJob

__all__ = ["LEASES"]


def _next_number(database: Database) -> int:
    """As a sequence in a database gives them, which a backup has too."""
    database.issued = getattr(database, "issued", 0) + 1
    return int(database.issued)


def _with_its_sequence(real: Callable[..., None], database: WatchedDatabase, saved: Any) -> None:
    real(database, saved)
    database.last_lease = saved.last_lease


def _own_ones_too(real: Callable[..., Any], database: Database, limit: int, own: Collection[int]) -> Any:
    del own
    return real(database, limit, ())


def _only_with_a_row(real: Callable[..., list[Row]], database: Database, own: Collection[int], now: datetime) -> list[Row]:
    """Jobs whose lease's row is gone aren't found."""
    return [row for row in real(database, own, now) if row.lease_id in database.leases]


def _none_if_any_is_odd(real: Callable[..., list[Row]], database: Database, rows: list[Row], now: datetime) -> list[Row]:
    return [] if any(row.unreadable for row in rows) else real(database, rows, now)


def _expiring(real: Callable[..., ClaimedJob], database: Database, row: Row) -> ClaimedJob:
    late = row.expires_at is not None and row.expires_at <= database.now()
    return replace(real(database, row), expired=late)


def _leases_alone(database: Database, own: Collection[int], now: datetime) -> list[datetime]:
    del now
    return [lease.expires_at for lease_id, lease in database.leases.items() if lease_id not in own]


def _all_pending(database: Database, names: frozenset[str], _: object) -> list[datetime]:
    rows = [row for row in database.rows.values() if row.state == StoredState.PENDING and row.new.type in names]
    return [row.run_at for row in rows]


LEASES: dict[str, Mistake] = {
    "a store whose lease ids come again": Mistake(
        ((Database, "new_lease_id", _next_number), instead_of(WatchedDatabase, "restore", _with_its_sequence)),
        cases=("lease/ids_cant_be_guessed",),
        breaks=Promise.ITS_OWN_BACK,
        theme=Theme.FAILOVER,
    ),
    "a store whose renewals don't move the end": Mistake(
        ((Database, "renew_lease", lambda *_: None),),
        cases=("lease/a_renewal_extends_it",),
        breaks=Promise.NOT_TAKEN_EARLY,
    ),
    "a store that refuses late renewals": Mistake(
        ((_lease, "may_renew", lambda database, lease_id: database.valid(lease_id, database.now())),),
        cases=("lease/a_late_renewal_is_granted",),
    ),
    "a store whose renewals don't tell what is lost": Mistake(
        ((_lease, "lost", lambda *_: {}),),
        cases=("lease/a_renewal_tells_what_is_lost",),
        breaks=Promise.STOPS_WHEN_LOST,
        theme=Theme.FAILOVER,
    ),
    "a store whose renewals don't tell of unknown claims": Mistake(
        ((_lease, "unheld", lambda *_: ()),),
        cases=("lease/a_renewal_tells_what_is_unheld",),
        breaks=Promise.UNKNOWN_BACK,
        theme=Theme.BACKLOG,
    ),
    "a store that recovers from a valid lease": Mistake(
        ((_recovery, "is_over", lambda *_: True),),
        cases=("take_expired/valid_leases_are_left_alone",),
        breaks=Promise.NOT_TAKEN_EARLY,
    ),
    "a store that lets a worker take its own lease": Mistake(
        (instead_of(_store, "take_expired", _own_ones_too),),
        cases=("take_expired/own_leases_are_never_taken",),
    ),
    "a store that doesn't find jobs whose lease's row is gone": Mistake(
        (instead_of(_recovery, "orphans", _only_with_a_row),),
        cases=(
            "take_expired/jobs_whose_lease_row_was_deleted_are_found",
            "take_expired/gives_the_jobs_of_an_expired_lease",
        ),
        breaks=Promise.SOON_RECOVERED,
    ),
    "a store in which an odd row stops all recovery": Mistake(
        (instead_of(_recovery, "readable", _none_if_any_is_odd),),
        cases=("odd_rows/recovery_goes_on",),
    ),
    "a store that lets what has started expire": Mistake(
        (instead_of(Database, "recover", _expiring),),
        cases=("take_expired/recovered_jobs_are_not_expired",),
        breaks=Promise.EXPIRY,
    ),
    "a store that doesn't say when a lease runs out": Mistake(
        ((_recovery, "lease_ends", lambda *_: []),),
        cases=("next_due/of_leases",),
        breaks=Promise.SOON_RECOVERED,
        theme=Theme.RECOVERY,
    ),
    "a store that doesn't say that jobs run without a lease": Mistake(
        ((_recovery, "lease_ends", _leases_alone),),
        cases=("next_due/of_jobs_without_a_lease",),
    ),
    "a store that waits for what is never due": Mistake(
        ((_recovery, "due_times", _all_pending),),
        cases=("next_due/of_what_is_never_due",),
    ),
    "a store whose late renewals don't tell what others have settled": Mistake(
        ((_settle, "end_lease_of_orphan", lambda *_: None), (_lease, "lost", lambda *_: {})),
        cases=("lease/a_late_renewal_after_an_orphans_settlement",),
    ),
    "a store that waits for the first inserted": Mistake(
        (instead_of(_recovery, "due_times", lambda real, *arguments: real(*arguments)[:1]),),
        cases=("next_due/of_the_first",),
    ),
}
