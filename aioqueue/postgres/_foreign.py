"""Enqueueing inside a transaction of the user's own, on a connection of any library that we know, or by any other driver.

All of them call the SQL function `enqueue_v2(json)` with one parameter of text, which makes the same jobs as every other way,
and notifies when the user's transaction commits. It doesn't tell which jobs have taken the place of others.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal, cast
from uuid import UUID

from aioqueue.postgres._foreign_connection import checked_connection, library_of, psycopg_rows
from aioqueue.postgres._insert_encoded import encode_jobs
from aioqueue.vocabulary._job import Inserted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.postgres._foreign_connection import Library
    from aioqueue.vocabulary._job import NewJob

__all__ = ["Placeholder", "insert", "statement"]

Placeholder = Literal["%s", "$1"]
"""How a driver writes a parameter: psycopg and psycopg2 `%s`, asyncpg and the server itself `$1`."""

_INSERT = "select cast(id as text), created from {schema}.enqueue_v2(cast(cast({text} as text) as json))"
# Themselves, or what their chains have become.
_FINISHED = (
    "with given as (select unnest(cast(string_to_array(cast({text} as text), ',') as uuid[])) as id) "
    "select cast(id as text), false from given where exists (select from {schema}.archive a where a.id = given.id) "
    "or exists (select from {schema}.job c where c.chain_id = given.id) "
    "or exists (select from {schema}.archive c where c.chain_id = given.id)"
)


async def insert(tx: object, schema: str, jobs: Sequence[NewJob], *, repeated: bool = False) -> Sequence[Inserted]:
    """Store jobs that wait for none, and replace none, in the transaction that is open on `tx`; its owner commits.

    A driver that begins a transaction by itself at the first statement does so here too.

    Arguments:
        tx: See `connection_of`.
        schema: The name of aioqueue's schema, unquoted.
        jobs: In the order of the results.
        repeated: Whether they may have been stored by an earlier try, and have finished since.

    Returns:
        One result each, in order. It holds if the transaction commits.

    Raises:
        NotInTransaction: The connection is in autocommit mode, with no transaction open.
        TypeError: It is something else.
    """
    library = library_of(tx)
    if not jobs:
        return []
    connection = await checked_connection(tx, library)
    finished: set[UUID] = set()
    if repeated:
        rows = await _run(connection, library, _FINISHED, schema, ",".join(str(job.id) for job in jobs))
        finished = {UUID(str(row[0])) for row in rows}
    missing = [job for job in jobs if job.id not in finished]
    stored = iter(await _run(connection, library, _INSERT, schema, encode_jobs(missing)) if missing else ())
    return [Inserted(job.id, created=False) if job.id in finished else _inserted(next(stored)) for job in jobs]


def _inserted(row: Sequence[object]) -> Inserted:
    return Inserted(UUID(str(row[0])), bool(row[1]))


def statement(schema: str, jobs: Sequence[NewJob], *, placeholder: Placeholder = "%s") -> tuple[str, tuple[str]]:
    """The statement that stores jobs, for any driver, and its one parameter.

    Arguments:
        schema: The name of aioqueue's schema, unquoted.
        jobs: What is to be stored.
        placeholder: How the driver writes a parameter.

    Returns:
        The SQL and the parameters. It returns a row each, in order: id as text, and whether the job was created.
    """
    return _query(_INSERT, schema, placeholder), (encode_jobs(jobs),)


def _query(template: str, schema: str, placeholder: str) -> str:
    quoted = '"' + schema.replace('"', '""') + '"'
    if placeholder == "%s":
        quoted = quoted.replace("%", "%%")
    elif placeholder == ":jobs":
        quoted = quoted.replace(":", r"\:")
    return template.format(schema=quoted, text=placeholder)


async def _run(tx: Any, library: Library, template: str, schema: str, text: str) -> Sequence[Sequence[object]]:
    """Run one of the statements above.

    Arguments:
        tx: What `checked_connection` gave.
        library: Whose it is.
        template: The statement.
        schema: The name of aioqueue's schema, unquoted.
        text: The parameter.
    """
    if library == "asyncpg":
        return cast("Sequence[Sequence[object]]", await tx.fetch(_query(template, schema, "$1"), text))
    if library == "psycopg":
        return await psycopg_rows(tx, "AsyncCursor", _query(template, schema, "%s"), (text,))
    query = sys.modules["sqlalchemy"].text(_query(template, schema, ":jobs"))
    return cast("Sequence[Sequence[object]]", (await tx.execute(query, {"jobs": text})).all())
