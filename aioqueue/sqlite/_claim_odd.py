"""Rows that can't be read, claimed or counted, since somebody wrote strange values with SQL, or a trigger raises.

Batches are read as a whole. Only when that fails is each row looked at alone, here: what is odd is moved to the archive
as failed, with the reason in its history, and its neighbours go on. What can't be moved either is left where it is, told in
the log and by the store's troubles, and passed over for a while.
"""

from __future__ import annotations

import functools
import logging
import math
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aioqueue.abc import Notification
from aioqueue.errors import LeaseLost, StoreError
from aioqueue.sqlite import _statements as sql
from aioqueue.sqlite._claim import end_expired, release, take, valid_now
from aioqueue.sqlite._connections import in_transaction
from aioqueue.sqlite._rows import Taken, claimed_job, dump, id_of, is_counter, load
from aioqueue.sqlite._settle import merged
from aioqueue.sqlite._settle_halving import halved, of_a_row
from aioqueue.vocabulary._job import AttemptError, Claim

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Sequence

    from aioqueue.sqlite._claim import Wanted
    from aioqueue.vocabulary._job import ClaimedJob

__all__ = ["OddRows"]

logger = logging.getLogger("aioqueue.sqlite")

_MORE = 100
"""How many rows beyond its limit a claim looks at, in search for sound ones."""
_PASSED_OVER = 60.0
"""Seconds after which a row that could be neither claimed nor failed is tried again."""
_PENDING, _RUNNING = 1, 2


@dataclass(frozen=True, slots=True)
class RowId:
    """A stored id, whatever it is.

    Attributes:
        blob: Whether it's a blob, and not text.
        raw: Its bytes.
    """

    blob: bool
    raw: bytes

    @property
    def parameters(self) -> dict[str, Any]:
        """As the statements want it that look for it."""
        return {"blob": self.blob, "raw": self.raw}

    @property
    def shown(self) -> UUID:
        """The id under which it's listed, and archived."""
        return id_of(self.raw if self.blob else self.raw.decode("utf-8", "replace"))


class _OddRow(Exception):
    """This row can't be read."""


class OddRows:
    """What one store knows of odd rows, and does with them, in its threads.

    Arguments:
        timeout: Seconds to wait for each write lock.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._stuck: dict[RowId, tuple[float, str]] = {}

    def trouble(self) -> str:
        """What is wrong at the moment; empty when all is well."""
        stuck = list(self._stuck.items())
        if not stuck:
            return ""
        row_id, (_, reason) = stuck[0]
        return f"{len(stuck)} jobs can be neither run nor failed, such as {row_id.shown}: {reason}"

    def any_stuck(self) -> bool:
        """Whether there are rows that have to be passed over."""
        if self._stuck:
            now = time.monotonic()
            self._stuck = {row_id: entry for row_id, entry in self._stuck.items() if entry[0] > now}
        return bool(self._stuck)

    def claim(self, connection: sqlite3.Connection, wanted: Wanted) -> tuple[list[ClaimedJob], Notification | None]:
        """Claim one row after the other, each in a transaction of its own.

        A row that can't be read is failed at once. One that is refused for another reason (a trigger) is failed if others
        could be claimed: otherwise it's the installation that is broken, and not the row.

        Raises:
            LeaseLost: One of the leases isn't valid; nothing was taken.
            StoreError: All that is due is refused: why the first was.
        """
        jobs: list[ClaimedJob] = []
        failed: list[UUID] = []
        refused: dict[RowId, StoreError] = {}
        valid_now(connection, wanted)
        for row_id in _heads(connection, wanted, wanted.limit + len(self._stuck) + _MORE):
            if len(jobs) == wanted.limit:
                break
            if row_id in self._stuck:
                continue
            try:
                jobs += in_transaction(connection, self._timeout, functools.partial(_claim, row_id=row_id, wanted=wanted))
            except LeaseLost:
                break  # the others were taken while it was valid
            except _OddRow as odd:
                failed += self.fail(connection, row_id, str(odd))
            except StoreError as error:
                if not of_a_row(error):
                    raise
                refused[row_id] = error
        if refused and not jobs and not failed:
            raise next(iter(refused.values()))
        for row_id, why in refused.items() if jobs else ():
            failed += self.fail(connection, row_id, f"it can't be claimed: {why}")
        return jobs, Notification(finished=frozenset(failed)) if failed else None

    def take_expired(
        self, connection: sqlite3.Connection, limit: int, own: Collection[int], waited: float
    ) -> tuple[list[ClaimedJob], Notification | None]:
        """As `_claim.take_expired`, one row after the other."""
        ended = in_transaction(connection, self._timeout, functools.partial(end_expired, own=own, waited=waited))
        jobs: list[ClaimedJob] = []
        failed: list[UUID] = []
        orphans = {"limit": limit + len(self._stuck), "own": dump(list(own))}
        for row_id in _ids(connection, sql.ORPHAN_IDS, orphans):
            entry = _read(connection, row_id, _RUNNING)
            if entry is None or row_id in self._stuck:
                continue
            if reason := _odd(entry):
                failed += self.fail(connection, row_id, reason, state=_RUNNING, lease=entry[6])
            else:
                jobs.append(claimed_job(entry, None))
        return jobs[:limit], Notification(finished=frozenset(failed), leases=ended)

    def end(self, connection: sqlite3.Connection, lease_id: int) -> Notification | None:
        """End a lease, and give back what it holds, as far as that can be written: the rest become jobs of a dead worker."""
        claims = sorted(self.held(connection, lease_id)[0], key=lambda claim: claim.id)
        notifications: list[Notification] = []
        give = functools.partial(release, lease_id=lease_id, end=False)
        for part, outcome in halved(connection, self._timeout, claims, lambda each, some: give(each, claims=some)):
            if isinstance(outcome, StoreError):
                logger.error("job %s can't be given back: %s", part[0].id, outcome)
            elif outcome is not None:
                notifications.append(outcome)
        in_transaction(connection, self._timeout, lambda each: each.execute(sql.LEASE_DELETE, {"lease": lease_id}))
        return merged([*notifications, Notification(leases=frozenset({lease_id}))])

    def held(self, connection: sqlite3.Connection, lease_id: int) -> tuple[set[Claim], dict[RowId, str]]:
        """What a lease holds, in any transaction.

        Returns:
            The sound claims; and the others, with what is wrong with them.
        """
        claims: set[Claim] = set()
        odd: dict[RowId, str] = {}
        for row_id in _ids(connection, sql.HELD_IDS, {"lease": lease_id}):
            entry = _read(connection, row_id, _RUNNING)
            if entry is None or row_id in self._stuck:
                continue
            if reason := _odd_values({name: entry[place] for name, place in (("id", 0), ("claims", 5))}):
                odd[row_id] = reason
            else:
                claims.add(Claim(UUID(entry[0]), entry[5]))
        return claims, odd

    def fail_held(self, connection: sqlite3.Connection, lease_id: int, odd: dict[RowId, str]) -> list[UUID]:
        """Move what `held` found to be odd to the archive. Returns the ids."""
        failed: list[UUID] = []
        for row_id, reason in odd.items():
            failed += self.fail(connection, row_id, reason, state=_RUNNING, lease=lease_id)
        return failed

    def fail(
        self, connection: sqlite3.Connection, row_id: RowId, reason: str, *, state: int = _PENDING, lease: object = None
    ) -> list[UUID]:
        """Move a row to the archive as failed, in a transaction of its own, if it still is in that state, of that lease.

        Returns:
            The id under which it's archived; nothing when it wasn't moved.

        Raises:
            StoreError: The file can't be written.
        """
        move = functools.partial(_move, row_id=row_id, reason=reason, state=state, lease=lease)
        try:
            moved = in_transaction(connection, self._timeout, move)
        except StoreError as refused:
            if not of_a_row(refused):
                raise
            told = f"{reason}; nor can it be moved to the archive: {refused}"
            self._stuck[row_id] = (time.monotonic() + _PASSED_OVER, told)
            logger.error("job %s is passed over: %s", row_id.shown, told)
            return []
        if not moved:
            return []
        logger.error("job %s was moved to the archive as failed: %s", row_id.shown, reason)
        return [row_id.shown]


# -- in SQL -------------------------------------------------------------------------------------------------------


def _ids(connection: sqlite3.Connection, statement: str, parameters: dict[str, Any]) -> list[RowId]:
    return [RowId(bool(row[0]), row[1]) for row in connection.execute(statement, parameters).fetchall()]


def _heads(connection: sqlite3.Connection, wanted: Wanted, limit: int) -> list[RowId]:
    # As a claim picks them, without JSON, which can't hold everything that an id or a due time may be.
    # The first of each lane come too, so that no lane stands before all others.
    found: list[tuple[int, float, bytes, RowId]] = []
    firsts: list[RowId] = []
    for job_type in load(wanted.types):
        for priority in (1, 2, 3, 4):
            lane = {"type": job_type, "priority": priority, "limit": limit}
            rows = connection.execute(sql.HEAD_IDS, lane).fetchall()
            found += [(priority, run_at, raw, RowId(bool(blob), raw)) for blob, raw, run_at in rows]
            firsts += [RowId(bool(blob), raw) for blob, raw, _ in rows[:1]]
    ordered = [entry[3] for entry in sorted(found, key=lambda entry: entry[:3])[:limit]]
    return list(dict.fromkeys([*ordered, *firsts]))


def _read(connection: sqlite3.Connection, row_id: RowId, state: int) -> Sequence[Any] | None:
    # The columns of a claim; None if it isn't in that state any more.
    row = connection.execute(sql.ODD_READ, row_id.parameters).fetchone()
    return row[:-1] if row is not None and row[-1] == state else None


def _claim(connection: sqlite3.Connection, row_id: RowId, wanted: Wanted) -> list[ClaimedJob]:
    taken = Taken(wanted.lease_id, wanted.leases, valid_now(connection, wanted))
    entry = _read(connection, row_id, _PENDING)
    if entry is None:
        return []
    if reason := _odd(entry):
        raise _OddRow(reason)
    job = claimed_job(entry, taken)
    take(connection, [job], taken)
    return [job]


def _move(connection: sqlite3.Connection, row_id: RowId, reason: str, state: int, lease: object) -> bool:
    entry = _read(connection, row_id, state)
    if entry is None:
        return False
    attempt = entry[4] if is_counter(entry[4]) else 0
    error = AttemptError(attempt=attempt, at=datetime.now(UTC), type="UnreadableRow", message=reason)
    now = connection.execute(f"SELECT {sql.NOW}").fetchone()[0]
    new = {"id": str(row_id.shown), "now": now, "error": error.encode().decode(), "state": state, "lease": lease}
    if connection.execute(sql.ODD_ARCHIVE, row_id.parameters | new).rowcount != 1:
        return False
    connection.execute(sql.ODD_DELETE, row_id.parameters)
    return True


# -- what is odd --------------------------------------------------------------------------------------------------


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and str(id_of(value)) == value


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int)


def _or_null(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or check(value)


_SOUND: dict[str, Callable[[Any], bool]] = {
    "id": _is_id,
    "type": _is_text,
    "payload": _is_text,
    "priority": _is_integer,
    "attempt": is_counter,
    "claims": is_counter,
    "lease_id": _or_null(_is_integer),
    "created_at": _is_number,
    "run_at": _is_number,
    "started_at": _or_null(_is_number),
    "max_attempts": _or_null(_is_integer),
    "retry": _or_null(_is_text),
    "timeout": _or_null(_is_number),
    "expires_at": _or_null(_is_number),
    "reschedules": is_counter,
    "key": _or_null(_is_text),
    "tags": _is_text,
    "metadata": _is_text,
}
"""What each column that a claim reads may hold, in the statement's order."""


def _odd(entry: Sequence[Any]) -> str:
    # What is wrong with a row; empty when nothing is.
    return _odd_values(dict(zip(_SOUND, entry, strict=True)))


def _odd_values(values: dict[str, Any]) -> str:
    wrong = [f"{name} = {value!r:.80}" for name, value in values.items() if not _SOUND[name](value)]
    return f"the stored row can't be read: {', '.join(wrong)}" if wrong else ""
