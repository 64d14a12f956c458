"""Schedules for the tests on PostgreSQL, and their ticks as a worker would work them out."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._origin import Origin
from aioqueue.vocabulary._schedule_template import decode_template, encode_template
from aioqueue.vocabulary._schedules import NewSchedule, Tick
from tests.postgres.stores import job

if TYPE_CHECKING:
    from datetime import datetime

    from aioqueue.postgres import PostgresStore
    from aioqueue.vocabulary._job import NewJob
    from aioqueue.vocabulary._schedules import StoredSchedule

SECOND = timedelta(seconds=1)


def schedule(name: str, *, template: NewJob | None = None, **options: Any) -> NewSchedule:
    """One that is due every second, unless the options say otherwise."""
    given: dict[str, Any] = {"owner": None, "every": 1.0, "job_type": "a"} | options
    return NewSchedule(name=name, template=encode_template(template or job()), **given)


def tick_of(stored: StoredSchedule, *, at: datetime | None = None, jobs: int = 1, **options: Any) -> Tick:
    """Enqueue so many ticks, a second apart, from the next one on; the one behind them is the next."""
    first = at or stored.next_at or stored.anchor + SECOND
    origins = [Origin(schedule=stored.name, nominal_time=first + number * SECOND) for number in range(jobs)]
    given: dict[str, Any] = {
        "expected": stored.next_at,
        "next_at": first + jobs * SECOND,
        "jobs": tuple(decode_template(stored.definition.template, new_id(), origin) for origin in origins),
    }
    return Tick(name=stored.name, version=stored.version, **(given | options))


async def fetched(store: PostgresStore, *names: str) -> list[StoredSchedule]:
    """Schedules that are there."""
    found = await store.fetch_schedules(names)
    assert None not in found
    return [each for each in found if each is not None]


async def tick_once(store: PostgresStore, *names: str, **options: Any) -> None:
    """Decide the next tick of each."""
    ticked = await store.tick([tick_of(each, **options) for each in await fetched(store, *names)])
    assert all(each.decided for each in ticked)
