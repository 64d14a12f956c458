"""What people do to jobs from outside: end them, and ask them to end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aioqueue.errors import AlreadyFinished, StoreUnavailable
from aioqueue.vocabulary._job import SettlementKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioqueue import Client, JobHandle
    from tests.simulation.checker import Checker
    from tests.simulation.plan import Answer


class Outside:
    """See the module. Each goes on until it has heard what became of it.

    Arguments:
        checker: Told of what is wanted, and of the answers.
        note: Writes a line of the history.
        name: How the job is called in it.
    """

    def __init__(self, checker: Checker, note: Callable[[str], None], name: str) -> None:
        self._checker = checker
        self._note = note
        self._name = name

    async def answer(self, client: Client, handle: JobHandle[Any], job_type: Any, answer: Answer) -> None:
        """End a job with something."""
        await asyncio.sleep(answer.after)
        kind: SettlementKind | None = SettlementKind.COMPLETED if answer.good else SettlementKind.FAILED
        self._checker.waiting.answered.add(handle.id)
        while True:
            try:
                if answer.good:
                    await client.complete(job_type, handle, "from outside")
                else:
                    await client.fail(handle, "refused")
            except StoreUnavailable:
                self._note(f"{self._name} couldn't be ended from outside, trying again")
                await asyncio.sleep(1)
                continue
            except AlreadyFinished:
                kind = None
            break
        self._checker.waiting.told_of_answer(handle.id, kind)

    async def ask(self, handle: JobHandle[Any], after: float) -> None:
        """Ask a job to end, so many seconds after it was enqueued."""
        await asyncio.sleep(after)
        self._checker.requests.wanted.add(handle.id)
        while True:
            try:
                answer = await handle.cancel(reason="enough")
            except StoreUnavailable:
                self._note(f"{self._name} couldn't be asked to end, trying again")
                await asyncio.sleep(1)
                continue
            break
        self._checker.requests.answered(handle.id, self._checker.waiting.last(handle.id), answer)
