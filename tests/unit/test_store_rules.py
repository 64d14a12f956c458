"""What all stores decide alike."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import tracemalloc
from uuid import UUID

import pytest

from aioqueue.errors import RowRejected
from aioqueue.store_rules._cursors import BY_TIME, OddValue, read_any_cursor, read_cursor, write_cursor
from aioqueue.store_rules._life import StoreLife
from aioqueue.store_rules._lost import lost_reason
from aioqueue.store_rules._states import shown_state
from aioqueue.store_rules._unique_keys import unique_hash, unique_hashes
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import JobState, LostReason, NewJob, StoredState
from aioqueue.vocabulary._listing import ListOrder
from aioqueue.vocabulary._unique import Unique

ID = UUID("01a220e9-b801-7000-93c9-5e3914d6501c")


@pytest.mark.parametrize(
    ("live", "archived", "reason"),
    [
        (True, None, LostReason.TAKEN),
        (True, 4, LostReason.TAKEN),
        (False, None, LostReason.NOT_FOUND),
        (False, 4, LostReason.COMPLETED),
        (False, 6, LostReason.COMPLETED),
        (False, 7, LostReason.CANCELLED),
        (False, 99, LostReason.COMPLETED),
    ],
)
def test_why_a_claim_was_lost(live: bool, archived: int | None, reason: LostReason) -> None:
    assert lost_reason(live=live, archived=archived) is reason


def test_a_store_that_was_never_closed_names_where_it_was_opened() -> None:
    class Nothing:
        async def start(self) -> None: ...

        async def close(self) -> None: ...

        def give_up(self) -> None: ...

    async def forget() -> None:
        await StoreLife[Nothing]("the store").open(Nothing)
        gc.collect()

    tracemalloc.start(20)
    try:
        with pytest.warns(ResourceWarning, match="the store was never closed") as caught:
            asyncio.run(forget())
        found = tracemalloc.get_object_traceback(caught[0].source)
    finally:
        tracemalloc.stop()
    assert found is not None
    assert __file__ in {frame.filename for frame in found}


@pytest.mark.parametrize("due", [False, True])
def test_a_state_that_fits_its_table_is_shown(due: bool) -> None:
    for stored in StoredState:
        archived = stored >= StoredState.COMPLETED
        assert shown_state(int(stored), archived=archived, due=due) is stored.shown(due=due)


@pytest.mark.parametrize("stored", [3, 8, 99, -1, None, "odd", b"\xff", 1.5, float("nan")])
def test_an_unknown_state_is_shown_by_its_table(stored: object) -> None:
    assert shown_state(stored, archived=False, due=True) is JobState.BLOCKED
    assert shown_state(stored, archived=True, due=True) is JobState.FAILED


def test_a_state_in_the_wrong_table_is_unknown() -> None:
    assert shown_state(StoredState.COMPLETED, archived=False, due=True) is JobState.BLOCKED
    assert shown_state(StoredState.RUNNING, archived=True, due=True) is JobState.FAILED


def test_a_unique_key_is_hashed_as_the_function_in_postgresql_does() -> None:
    digest = hashlib.sha256("5:räumekey 😀".encode()).digest()
    assert unique_hash("räume", "key 😀") == UUID(bytes=digest[:16])
    # The length keeps the type and the key apart.
    assert unique_hash("ab", "c") != unique_hash("a", "bc")


def test_a_renamed_type_is_looked_for_under_all_names_and_stored_under_the_oldest() -> None:
    job = NewJob(id=new_id(), type="new", key="k", unique=Unique(), aliases=("oldest", "older"))
    assert unique_hashes(job) == tuple(unique_hash(name, "k") for name in ("oldest", "older", "new"))
    assert unique_hashes(NewJob(id=new_id(), type="new", key="k")) == ()


@pytest.mark.parametrize("key", [None, "\ud800"])
def test_a_unique_job_whose_key_cannot_be_hashed_is_refused(key: str | None) -> None:
    with pytest.raises(RowRejected, match="key"):
        unique_hashes(NewJob(id=new_id(), type="t", key=key, unique=Unique()))


ODD = OddValue(blob=True, raw=b"\xff\x00")
PLACES = [
    *((order, last, None) for order in ListOrder if order not in BY_TIME for last in (ID, ODD, OddValue(False, b"no uuid"))),
    *(
        (order, last, at)
        for order in sorted(BY_TIME)
        for last in (ID, ODD)
        for at in (0, -(2**63) + 1, 9e30, 1.5, float("-inf"), ODD)
    ),
]


@pytest.mark.parametrize(("order", "last", "at"), PLACES)
def test_a_cursor_is_read_as_it_was_written(order: ListOrder, last: UUID | OddValue, at: float | OddValue | None) -> None:
    cursor = write_cursor(order, last, at)
    found = read_any_cursor(order, cursor)
    assert (found, type(found[1])) == ((last, at), type(at))
    for other in set(ListOrder) - {order}:
        with pytest.raises(ValueError, match=other):
            read_any_cursor(other, cursor)


@pytest.mark.parametrize("kept", [ID.hex, f"1.{ID}"])
def test_cursors_of_older_code_are_read(kept: str) -> None:
    assert read_any_cursor(ListOrder.NEWEST, kept) == (ID, None)
    assert read_cursor(ListOrder.NEWEST, kept) == (ID, None)


@pytest.mark.parametrize(
    "cursor",
    [
        *("", "1.", "2.", "x", ".", "1.no-uuid", "2.x00", "2.b0", f"3.{ID}", f"{{{ID}}}", f"2.{ID}", "é", "oldest:", ":"),
        *(f"due:{ID.hex}", f"due:nan:{ID.hex}", f"due::{ID.hex}", f"due:{2**63}:{ID.hex}", f"newest:1:{ID.hex}", f"any:{ID}"),
    ],
)
@pytest.mark.parametrize("order", ListOrder)
def test_what_is_no_cursor_is_refused(order: ListOrder, cursor: str) -> None:
    for read in (read_any_cursor, read_cursor):
        with pytest.raises(ValueError, match="cursor"):
            read(order, cursor)


@pytest.mark.parametrize(("last", "at"), [(ODD, 1), (ID, ODD)])
def test_a_store_of_uuids_refuses_a_cursor_of_other_values(last: UUID | OddValue, at: float | OddValue) -> None:
    with pytest.raises(ValueError, match="cursor"):
        read_cursor(ListOrder.DUE, write_cursor(ListOrder.DUE, last, at))
