"""A handler's own transaction, and what it enqueues with its outcome, as users write them: checked by mypy and pyright."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, assert_type

from aioqueue import Attempt, Call, Completion, Registry, current_attempt, done

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from sqlalchemy.ext.asyncio import async_sessionmaker


@asynccontextmanager
async def tenant(attempt: Attempt, tx: Completion) -> AsyncGenerator[None]:
    await tx.execute("select set_config('app.tenant', $1, true)", attempt.metadata["tenant"])
    yield


registry = Registry(completion_middlewares=[tenant])


@registry.job
async def fetch(url: str) -> str:
    return url


@registry.job
async def charge(order: int) -> str:
    async with current_attempt().completion() as tx:  # its exit swallows nothing: there's no way past the return
        assert_type(tx, Completion)
        assert_type(await tx.execute("update orders set paid = true where id = $1", order), int)
        current_attempt().enqueue(fetch("receipt"))
        handle = await tx.enqueue(fetch("a"))
        assert_type(handle.output, str)
        async with tx.savepoint():
            await tx.enqueue_many([fetch("b")])
        await tx.complete(fetch, handle, "text")
        await tx.fail(handle, "no")
        return tx.done("receipt")


@registry.job
async def goes_on(number: int) -> Call[str]:
    async with current_attempt().completion() as tx:
        if number:
            return tx.done(goes_on(number - 1))
        return tx.done(done("end"))


async def with_a_session(sessions: async_sessionmaker[Any]) -> str:
    async with sessions.begin() as session, current_attempt().completion(tx=session) as tx:
        return tx.done("receipt")


@registry.job
def in_a_thread() -> None:
    current_attempt().enqueue(fetch("a"))
