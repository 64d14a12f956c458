"""Requests to end that couldn't be seen to at once: of chains whose rows somebody held, or that code from before let go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.postgres._connections_halving import in_halves
from aioqueue.postgres._operate_cancel import cancel, cancel_statements
from aioqueue.vocabulary._answers import Cancellation

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from uuid import UUID

    from aioqueue.errors import StoreError
    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._notification import Notification

__all__ = ["REQUESTS_LEFT", "apply_requests", "requests_statements"]

_STANDS = (
    """SELECT true FROM @schema@.job j WHERE j.{id} = r.chain_id AND j.state + 0 = 2 AND j.cancel_reason IS NOT NULL LIMIT 1"""
)
_LEFT = f"""@schema@.cancel_request r
    WHERE coalesce(({_STANDS.format(id="chain_id")}), ({_STANDS.format(id="id")})) IS NULL"""
REQUESTS_LEFT = f"EXISTS (SELECT FROM {_LEFT})"
"""Whether there are any. Where the chain is running, and its row says that it was asked, its worker sees to it."""

_REQUESTS = f"""SELECT r.chain_id FROM {_LEFT} AND NOT r.chain_id = ANY($2::uuid[])
ORDER BY r.requested_at LIMIT $1::integer"""


def requests_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    return {"tend_requests": schema.render(_REQUESTS), **cancel_statements(schema)}


async def apply_requests(
    connection: Connection,
    statements: dict[str, str],
    limit: int,
    *,
    origin: str | None,
    passed_over: Collection[UUID],
    refused: dict[UUID, StoreError],
) -> tuple[list[Notification], bool]:
    """See to requests that are left, within the connection's open transaction.

    Arguments:
        connection: In a transaction, in which rows are waited for briefly.
        statements: Those of this module, and maybe others.
        limit: Chains at most.
        origin: Who tells other processes; None if nobody is to be told.
        passed_over: Chains that aren't tried.
        refused: Where chains are put whose rows refuse to be ended, and why.

    Returns:
        What listeners are to be told, and whether any chain has ended.
    """
    rows = await connection.fetch(statements["tend_requests"], limit, list(passed_over))
    notes: list[Notification] = []
    ended = False

    async def apply(chains: Sequence[UUID]) -> None:
        nonlocal ended
        done = await cancel(connection, statements, chains, "", origin=origin, again=True)
        notes.append(done.told)
        refused.update(done.refused)
        ended = ended or Cancellation.CANCELLED in done.results.values()

    undone = await in_halves(connection, [row[0] for row in rows], apply)
    refused.update({chain_id: why for chain_id, why in undone if why is not None})
    return notes, ended
