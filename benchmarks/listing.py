"""What a page of each listing costs over many jobs: `python -m benchmarks.listing [--sqlite] [--live N] [--archived N]`.

The tables are filled by SQL, with each thing that a filter can ask for both often and rarely. For each filter and order
pages are turned from the beginning and from the middle; a line of JSON says how many milliseconds they took, each the median of
some rounds. `short` are those that had fewer jobs than were asked for, and a successor: there rows are looked at one by one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg

from aioqueue import Client
from aioqueue.abc import JobFilter, ListOrder, Page
from aioqueue.store_rules._cursors import BY_TIME, write_cursor
from aioqueue.vocabulary._job import JobState
from benchmarks.listing_sqlite import fill as fill_sqlite
from benchmarks.server import add_options, postgres, prepared

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.abc import Store

FIRST_MILLISECOND = 1_700_000_000_000
"""When the first job was made; each was a millisecond after the one before."""
_ID = f"(lpad(to_hex({FIRST_MILLISECOND} + {{n}}), 12, '0') || '7000800000' || lpad(to_hex({{n}}), 10, '0'))::uuid"
_CREATED = f"to_timestamp(({FIRST_MILLISECOND} + n) / 1000.0)"
_TYPE = "'bench.type' || n % 20"
_COMMON = f"""CASE WHEN n % 100000 = 7 THEN 'bench.rare' ELSE {_TYPE} END,
    CASE n % 50 WHEN 0 THEN 1 WHEN 1 THEN 3 ELSE 2 END, {_CREATED},
    CASE WHEN n % 10 = 3 THEN 'common' WHEN n % 100000 = 4 THEN 'rare' END,
    CASE WHEN n % 10 = 4 THEN ARRAY['common'] WHEN n % 100000 = 5 THEN ARRAY['rare', 'common'] ELSE '{{}}' END"""

# As people have them: most jobs have completed, some were steps, a few failed; of the live ones most are due later.
ARCHIVED = f"""INSERT INTO aioqueue.archive (id, type, priority, created_at, key, tags, run_at, state, attempt, claims,
    reschedules, chain_id, position, finished_at, outcome, metadata, payload, errors)
SELECT {_ID.format(n="n")}, {_COMMON}, {_CREATED},
    CASE WHEN n % 1000 = 9 THEN 6 WHEN n % 100000 = 17 THEN 7 WHEN n % 20 = 18 THEN 5 ELSE 4 END, 1, 1, 0,
    CASE WHEN n % 20 = 19 THEN {_ID.format(n="(n - 1)")} END, CASE WHEN n % 20 = 19 THEN 1 ELSE 0 END,
    {_CREATED} + interval '10 s' + n % 100 * interval '1 s',
    CASE WHEN n % 100000 = 16 THEN 'rare' WHEN n % 10 = 6 THEN 'common' END, '{{}}', '{{"number": 1}}',
    CASE WHEN n % 1000 = 9 OR n % 100 = 11 THEN ARRAY[json_build_object('attempt', 1, 'at', '2026-01-01T00:00:00+00:00',
        'type', CASE WHEN n % 100000 = 9 THEN 'RareError' ELSE 'ValueError' END, 'message', 'no', 'traceback', '')]
        ELSE '{{}}' END
FROM generate_series($1::bigint, $2::bigint) AS n"""
LIVE = f"""INSERT INTO aioqueue.job (id, type, priority, created_at, key, tags, run_at, state, attempt, claims, lease_id,
    payload)
SELECT {_ID.format(n="n")}, {_COMMON},
    now() + CASE WHEN n % 10 < 4 THEN -1 ELSE 1 END * (n % 1000000) * interval '1 s',
    CASE WHEN n % 1000 = 31 THEN 2 WHEN n % 500 = 33 THEN 0 ELSE 1 END, CASE WHEN n % 1000 = 31 THEN 1 ELSE 0 END,
    CASE WHEN n % 1000 = 31 THEN 1 ELSE 0 END, CASE WHEN n % 1000 = 31 THEN 1 + n / 1000 % 20 END, '{{"number": 1}}'
FROM generate_series($1::bigint, $2::bigint) AS n"""
LEASES = """INSERT INTO aioqueue.lease (worker, expires_at) SELECT 'worker' || n, now() + interval '1 hour'
FROM generate_series(1, 20) AS n"""
PORTION = 250_000


async def fill(url: str, *, live: int, archived: int, say: bool = True) -> None:
    """Fill the tables of a database that has been migrated."""
    connection = await asyncpg.connect(url)
    began = time.perf_counter()
    try:
        await connection.execute("SET synchronous_commit = off")
        for statement, first, last in ((ARCHIVED, 1, archived), (LIVE, archived + 1, archived + live)):
            for start in range(first, last + 1, PORTION):
                await connection.execute(statement, start, min(start + PORTION - 1, last))
        await connection.execute(LEASES)
        await connection.execute("VACUUM (ANALYZE)")
    finally:
        await connection.close()
    if say:
        print(json.dumps({"filled": {"live": live, "archived": archived}, "seconds": round(time.perf_counter() - began)}))


def made_by(number: int) -> UUID:
    """The id of the job with this number."""
    return UUID(f"{FIRST_MILLISECOND + number:012x}7000800000{number:010x}")


def created_by(number: int) -> datetime:
    """When it was made."""
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=FIRST_MILLISECOND + number)


def filters(archived: int) -> dict[str, JobFilter]:
    """What is asked for, by a name for it."""
    middle = archived // 2
    found: dict[str, Any] = {
        "all": {},
        "ends": {"ends": True},
        **{f"state {state.value}": {"states": [state]} for state in JobState},
        "states failed, ready": {"states": ["failed", "ready"]},
        "type": {"types": ["bench.type3"]},
        "type rare": {"types": ["bench.rare"]},
        "type unknown": {"types": ["bench.unknown"]},
        "types, 20": {"types": [f"bench.type{number}" for number in range(20)]},
        "type, failed": {"types": ["bench.type9"], "states": ["failed"]},
        "type, failed, no rows": {"types": ["bench.type3"], "states": ["failed"]},
        "type, ready": {"types": ["bench.type3"], "states": ["ready"]},
        "type, running, no rows": {"types": ["bench.type3"], "states": ["running"]},
        "type, completed": {"types": ["bench.type3"], "states": ["completed"]},
        "key": {"key": "common"},
        "key rare": {"key": "rare"},
        "key unknown": {"key": "unknown"},
        "key, failed, no rows": {"key": "common", "states": ["failed"]},
        "tag": {"tag": "common"},
        "tag rare": {"tag": "rare"},
        "tag unknown": {"tag": "unknown"},
        "worker": {"worker": "worker3"},
        "worker unknown": {"worker": "unknown"},
        "outcome": {"outcome": "common"},
        "outcome rare": {"outcome": "rare"},
        "outcome unknown": {"outcome": "unknown"},
        "chain": {"chain_id": made_by(middle - middle % 20 + 18)},
        "chain unknown": {"chain_id": UUID(int=0)},
        "error": {"error_type": "ValueError"},
        "error rare": {"error_type": "RareError"},
        "error unknown": {"error_type": "UnknownError"},
        "failed, error rare": {"error_type": "RareError", "states": ["failed"]},
        "failed, error unknown": {"error_type": "UnknownError", "states": ["failed"]},
        "created after": {"created_after": created_by(archived)},
        "created between": {"created_after": created_by(middle), "created_before": created_by(middle + 1_000)},
        "finished after": {"finished_after": created_by(archived)},
        "finished between": {"finished_after": created_by(middle), "finished_before": created_by(middle + 1_000)},
        "failed, finished between": {
            "states": ["failed"], "finished_after": created_by(middle), "finished_before": created_by(middle + 100_000),
        },
        "ids between": {"first_id": made_by(middle), "last_id": made_by(middle + 1_000)},
        "ids between, failed": {"first_id": made_by(middle), "last_id": made_by(middle + 100_000), "states": ["failed"]},
    }  # fmt: skip
    return {name: JobFilter(**values) for name, values in found.items()}


def orders_of(where: JobFilter) -> Sequence[ListOrder]:
    """The orders in which a filter makes sense."""
    live = not where.states or bool(where.states & {"blocked", "scheduled", "ready", "running"})
    archived = not where.states or not where.states <= {"blocked", "scheduled", "ready", "running"}
    due = live and where.outcome is None and where.finished_after is None
    orders = [ListOrder.NEWEST, ListOrder.OLDEST]
    return [*orders, *[ListOrder.DUE] * due, *[ListOrder.FINISHED] * (archived and where.worker is None)]


def in_the_middle(order: ListOrder, archived: int, live: int) -> str:
    """A cursor halfway through all jobs."""
    if order not in BY_TIME:
        return write_cursor(order, made_by((archived + live) // 2))
    at = datetime.now(UTC) if order is ListOrder.DUE else created_by(archived // 2)
    return write_cursor(order, made_by(archived // 2), (at - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1))


async def measure(store: Store, where: JobFilter, order: ListOrder, arguments: argparse.Namespace) -> dict[str, Any]:
    """Turn pages from the beginning, and as many from the middle, and time each."""
    begins = (None, in_the_middle(order, arguments.archived, arguments.live))
    rounds = [await turn(store, where, order, begin, arguments) for begin in begins]
    times = [each for taken, _, _ in rounds for each in taken]
    return {
        "pages": len(times),
        "jobs": sum(jobs for _, jobs, _ in rounds),
        "short": sum(short for _, _, short in rounds),
        "first": round(times[0], 2),
        "middle": round(rounds[1][0][0], 2),
        "median": round(statistics.median(times), 2),
        "worst": round(max(times), 2),
    }


async def turn(
    store: Store, where: JobFilter, order: ListOrder, cursor: str | None, arguments: argparse.Namespace
) -> tuple[list[float], int, int]:
    """Turn pages; returns how many milliseconds each took, how many jobs they showed, and how many of them were short."""
    times: list[float] = []
    limit, jobs, short = arguments.limit, 0, 0
    for _ in range(arguments.pages):
        taken: list[float] = []
        page = Page((), None)
        for _ in range(arguments.rounds):
            began = time.perf_counter()
            page = await store.list(where, limit, cursor, order=order)
            taken.append(1e3 * (time.perf_counter() - began))
        # The first time of all, the statement is planned.
        times.append(statistics.median(taken))
        jobs += len(page.jobs)
        short += len(page.jobs) < limit and page.cursor is not None
        cursor = page.cursor
        if cursor is None:
            break
    return times, jobs, short


async def run(url: str, arguments: argparse.Namespace) -> None:
    """Measure every filter in every order."""
    async with Client(url) as client:
        for name, where in filters(arguments.archived).items():
            for order in orders_of(where):
                if arguments.only and arguments.only not in f"{name} {order.value}":
                    continue
                found = await measure(client.store, where, order, arguments)
                print(json.dumps({"filter": name, "order": order.value, **found}), flush=True)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.listing", description=(__doc__ or "").splitlines()[0])
    add_options(parser, Path)
    parser.add_argument("--sqlite", action="store_true", help="a file in a temporary folder, instead of PostgreSQL")
    parser.add_argument("--url", help="a database that was filled before; it's left as it is")
    parser.add_argument("--live", type=int, default=1_000_000)
    parser.add_argument("--archived", type=int, default=3_000_000)
    parser.add_argument("--limit", type=int, default=50, help="jobs on a page")
    parser.add_argument("--pages", type=int, default=10, help="pages that are turned, at most")
    parser.add_argument("--rounds", type=int, default=5, help="how often each page is asked for")
    parser.add_argument("--only", help="filters and orders whose names have this in them")
    arguments = parser.parse_args()
    if arguments.url is not None:
        asyncio.run(run(arguments.url, arguments))
        return
    if arguments.sqlite:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "jobs.db"
            asyncio.run(prepared(f"sqlite:///{path}"))
            fill_sqlite(path, start=FIRST_MILLISECOND, live=arguments.live, archived=arguments.archived)
            asyncio.run(run(f"sqlite:///{path}", arguments))
        return
    with postgres(arguments.server, arguments.binaries) as databases, databases.fresh() as url:
        asyncio.run(prepared(url))
        asyncio.run(fill(url, live=arguments.live, archived=arguments.archived))
        asyncio.run(run(url, arguments))


if __name__ == "__main__":
    main()
