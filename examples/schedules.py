"""Jobs again and again: as the code says, and as somebody says at run time; and what isn't to be started for now.

    python -m examples.schedules [--url URL]

Each tick is decided once, whatever number of workers there is. `current_attempt().job.nominal_time` tells a job which
tick it's for. The expression needs the extra `cron`: pip install cronsim.
"""

from __future__ import annotations

import argparse
import asyncio
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from aioqueue import Client, Registry, Worker, current_attempt

registry = Registry(prefix="planned.")
beats = asyncio.Semaphore(0)


# -- as the code says -------------------------------------------------------------------------------------------------


@registry.job
async def beat() -> None:
    """Runs each second, for as long as a worker of this registry does."""
    assert current_attempt().job.nominal_time is not None
    beats.release()


registry.schedule(beat(), every=timedelta(seconds=1), overlap="skip")


# -- as somebody says -------------------------------------------------------------------------------------------------


@registry.job
async def report(kind: str) -> str:
    """What is to be made each night."""
    return f"the {kind} report"


async def at_run_time(client: Client) -> None:
    """Put one, see when its ticks are, run it by hand, and remove it."""
    await client.schedules.put("nightly", report("nightly"), cron="30 2 * * *", timezone="Europe/Berlin")
    for tick in await client.schedules.preview("nightly", count=2, after=datetime(2031, 3, 29, 12, tzinfo=UTC)):
        print("preview:", tick.astimezone(ZoneInfo("Europe/Berlin")))  # clocks go forward that night
    handle = await client.schedules.run_now("nightly")
    print("by hand:", await handle.result(timeout=30))
    await client.schedules.delete("nightly")


# -- not for now ------------------------------------------------------------------------------------------------------


async def paused(client: Client) -> None:
    """Pause a job type: its jobs wait, until it's resumed."""
    await client.pause(report, reason="the printer is out of paper", by="Ann", until=timedelta(hours=1))
    handle = await client.enqueue(report("paused"))
    why = await client.why(handle)
    print("waits:  ", why.reasons[0].code)
    await client.resume(report)
    print("resumed:", await handle.result(timeout=30))


# -- the program ------------------------------------------------------------------------------------------------------


async def run(url: str | None) -> None:
    """Work until two ticks of the code's schedule have run."""
    async with Client(url) as client, Worker(client, registry):
        await at_run_time(client)
        await paused(client)
        for _ in range(2):
            async with asyncio.timeout(30):
                await beats.acquire()
        found = await client.schedules.get("planned/planned.beat")
        print("in code:", found.name, "by", found.owner, "every", found.every, "s")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.schedules", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url", help="the database; by default AIOQUEUE_URL, else sqlite:///aioqueue.db")
    arguments = parser.parse_args()
    asyncio.run(run(arguments.url))


if __name__ == "__main__":
    main()
