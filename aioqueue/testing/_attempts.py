"""An attempt without a worker: what a unit test puts around a handler that asks for its attempt."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from aioqueue.definitions._context import Attempt, activate
from aioqueue.definitions._dry_runs import DRY_RUN
from aioqueue.definitions._resources import ResourceScope, current_scope
from aioqueue.vocabulary._job import ClaimedJob

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from aioqueue.client import Client
    from aioqueue.definitions._call import Call
    from aioqueue.definitions._job_type import JobType

__all__ = ["attempt_of"]


@asynccontextmanager
async def attempt_of(
    call: Call[Any], *, client: Client | None = None, number: int = 1, dry_run: bool = False
) -> AsyncGenerator[Attempt, None]:
    """Be inside an attempt of a job that no worker runs: `current_attempt()` gives it in the block, and nothing is stored.

    `async with attempt_of(publish(url)) as attempt: assert await publish.fn(url) == 4`. Phases run, and keep their results for
    as long as the attempt lives; what was said with `progress` last is `attempt.last_progress`. Resources are those of the
    `registry.resource_scope()` in which this is; without one they're opened, and closed at the end of the block.

    Arguments:
        call: Of the job; it needn't be enqueued, and isn't.
        client: For handlers that use `attempt.client`.
        number: Of the attempt, from 1.
        dry_run: Whether it's part of a dry run.
    """
    new, now = call.to_new_job(), datetime.now(UTC)
    job = ClaimedJob(
        id=new.id,
        chain_id=new.id,
        type=new.type,
        payload=new.payload,
        priority=new.priority,
        attempt=number,
        claims=number,
        lease_id=0,
        created_at=now,
        run_at=now,
        started_at=now,
        max_attempts=new.max_attempts,
        retry=new.retry,
        timeout=new.timeout,
        key=new.key,
        tags=new.tags,
        metadata=new.metadata,
        origin=DRY_RUN if dry_run else None,
    )
    async with AsyncExitStack() as stack:
        scope = current_scope.get(None)
        if scope is None:
            worker = ResourceScope()
            stack.push_async_exit(worker)
            scope = worker.child()
            stack.push_async_exit(scope)
        job_type = cast("JobType[..., Any, Any]", call.job_type)
        with activate(Attempt(job, job_type, worker_id="test", client=client, resources=scope)) as attempt:
            yield attempt
