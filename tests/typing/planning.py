"""Never run: schedules and pauses, as both type checkers must know them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from aioqueue import (
    Client,
    DecidedTick,
    JobHandle,
    ListedSchedules,
    Pause,
    PauseTarget,
    Registry,
    Schedule,
    Schedules,
    TickOutcome,
)

registry = Registry(prefix="site.")


@registry.job
async def fetch(url: str) -> str:
    return url


async def pauses(client: Client) -> None:
    assert_type(await client.pause(fetch), None)
    await client.pause(fetch, "site.other", until=timedelta(hours=1), reason="why", by="Ada")
    await client.pause(key="customer 7", until=datetime.now(UTC))
    await client.pause(all=True)
    assert_type(await client.resume(fetch, "site.other", by="Ada"), int)
    assert_type(await client.resume(key="customer 7"), int)
    assert_type(await client.resume(all=True), int)
    found = await client.pauses()
    assert_type(found, Sequence[Pause])
    assert_type(found[0].target, PauseTarget)
    assert_type(found[0].until, datetime | None)
    assert_type((await client.job("id")).held_by, str | None)
    assert_type((await client.job("id")).nominal_time, datetime | None)


async def schedules(client: Client) -> None:
    planned = client.schedules
    assert_type(planned, Schedules)
    made = await planned.put(
        "nightly", fetch("https://example.org"), cron="0 3 * * *", timezone="Europe/Berlin", overlap="skip"
    )
    assert_type(made, Schedule)
    assert_type(made.next_tick, datetime | None)
    assert_type(made.arguments, Any)
    assert_type(made.ticks, tuple[DecidedTick, ...])
    assert_type(made.ticks[0].outcome, TickOutcome)
    await planned.put("often", fetch("a"), every=timedelta(minutes=1), catch_up="all", catch_up_limit=3, grace=60)
    assert_type(await planned.put_by_name("far", "else.where", {"n": 1}, call_options={"priority": 1}, every=60), Schedule)
    page = await planned.list(limit=3)
    assert_type(page, ListedSchedules)
    assert_type((await planned.list(cursor=page.cursor)).schedules, tuple[Schedule, ...])
    assert_type(await planned.get("nightly"), Schedule)
    assert_type(await planned.pause("nightly", reason="why", by="Ada"), None)
    assert_type(await planned.resume("nightly"), None)
    assert_type(await planned.delete("nightly"), None)
    assert_type(await planned.run_now("nightly", overlap="allow"), JobHandle[Any])
    assert_type(await planned.preview("nightly", count=3, after=datetime.now(UTC)), Sequence[datetime])
    assert_type(await planned.preview(cron="@daily"), Sequence[datetime])
    assert_type(await planned.preview(every=timedelta(minutes=5)), Sequence[datetime])
