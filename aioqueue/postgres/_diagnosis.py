"""Whether the server, the schema and all around them are as they should be: what `aioqueue doctor` asks."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from aioqueue.postgres import _diagnosis_access as access
from aioqueue.postgres import _diagnosis_settings as settings
from aioqueue.postgres import _diagnosis_vacuum as vacuum
from aioqueue.postgres._diagnosis_connection import Look
from aioqueue.postgres._diagnosis_notifications import notifications, pooler
from aioqueue.store_rules._diagnosis import CHECK_SECONDS, run_checks
from aioqueue.vocabulary._finding import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioqueue.postgres._options import Options
    from aioqueue.vocabulary._finding import Finding

__all__ = ["diagnose"]


async def diagnose(options: Options, *, now: Callable[[], float] = time.time, longest: float = CHECK_SECONDS) -> list[Finding]:
    """Make all checks, over connections of their own, one statement at a time.

    Arguments:
        options: The store's.
        now: This machine's clock.
        longest: Seconds that each check may take.
    """
    look, schema = Look(options.source), options.schema
    try:
        findings = await run_checks(
            {"connection": partial(access.connection, look, min(options.source.timeout, longest * 2 / 3))}, longest=longest
        )
        if any(each.verdict is not Verdict.OK for each in findings):
            return findings  # whatever else is asked, the answer is the same
        return findings + await run_checks(
            {
                "server": partial(access.server, look),
                "schema": partial(access.schema, look, schema),
                "rights": partial(access.rights, look, schema),
                "durability": partial(settings.durability, look),
                "connections": partial(settings.connections, look),
                "timeouts": partial(settings.timeouts, look),
                "autovacuum": partial(settings.autovacuum, look, schema),
                "clock": partial(settings.clock, look, now),
                "pooler": partial(pooler, look, options),
                "notifications": partial(notifications, look, options),
                "old_transactions": partial(vacuum.old_transactions, look),
                "prepared_transactions": partial(vacuum.prepared_transactions, look),
                "replication_slots": partial(vacuum.replication_slots, look),
                "dead_rows": partial(vacuum.dead_rows, look, schema),
            },
            longest=longest,
        )
    finally:
        await look.close()
