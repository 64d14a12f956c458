"""Checks of a diagnosis: what lies between the client and the server, and whether notifications arrive."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import orjson

from aioqueue.postgres._connections_closing import close_connection
from aioqueue.postgres._errors import translated
from aioqueue.postgres._notifications import notify_statements
from aioqueue.vocabulary._finding import Finding, Verdict

if TYPE_CHECKING:
    from aioqueue.postgres._connections_source import Source
    from aioqueue.postgres._diagnosis_connection import Look
    from aioqueue.postgres._options import Options
    from aioqueue.postgres._options_schema import Schema

__all__ = ["notifications", "pooler"]

_HEARD_SECONDS = 5.0
_BACKEND = "SELECT pg_catalog.pg_backend_pid()"


async def pooler(look: Look, options: Options) -> list[Finding]:
    """Whether a pooler is in between: it gives clients a process id of its own making, for their cancel requests."""
    async with look.transaction() as connection:
        told = connection.get_server_pid()
        ((real,),) = await connection.fetch(_BACKEND)
    if told == real:
        return [Finding("pooler", Verdict.OK, "connected to the server itself, without a pooler such as PgBouncer")]
    seen = "there's a pooler such as PgBouncer in between"
    if not options.source.prepared:
        return [Finding("pooler", Verdict.OK, f"{seen}, for which pgbouncer=true is said")]
    if await _hears(look, options.source, options.schema, _HEARD_SECONDS):
        return [Finding("pooler", Verdict.OK, f"{seen}, which gives each client a session of its own")]
    advice = "Say pgbouncer=true: what we set for our sessions would reach other people's."
    return [Finding("pooler", Verdict.WARNING, f"{seen}, in transaction mode, and pgbouncer=true isn't said", advice)]


async def notifications(look: Look, options: Options, *, heard_within: float = _HEARD_SECONDS) -> list[Finding]:
    """Whether a note that is sent arrives."""
    if not options.notify:
        return [Finding("notifications", Verdict.OK, "turned off (notify=False): jobs are found by polling")]
    where = options.listen_source.description
    if await _hears(look, options.listen_source, options.schema, heard_within):
        return [Finding("notifications", Verdict.OK, f"they arrive, at {where}")]
    seen = (
        f"{where}: they don't arrive within {heard_within:g} s (behind PgBouncer in transaction mode?), so workers find jobs "
        "by polling"
    )
    advice = "Give listen_url= with the server's own address, or notify=False, with which nobody tries."
    return [Finding("notifications", Verdict.WARNING, seen, advice)]


async def _hears(look: Look, source: Source, schema: Schema, within: float) -> bool:
    """Whether a note arrives that is sent on another connection. Workers hear it too, and see that it's none of theirs."""
    heard = asyncio.Event()
    probe = uuid.uuid4().hex

    def received(_connection: Any, _process: int, _channel: str, payload: str) -> None:
        if probe in payload:
            heard.set()

    listening = await source.open()
    try:
        with translated(source.description):
            await listening.add_listener(schema.channel, received)
        note = orjson.dumps({"o": probe, "p": probe}).decode()
        await look.rows(notify_statements(schema)["notify"], note)
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await heard.wait()
    finally:
        await close_connection(listening)
    return heard.is_set()
