"""An order that waits for somebody's answer, and goes on without one when it takes too long.

    python -m examples.approval [--url URL]

The approval is a job without a handler: it waits, as long as it takes, without a worker, and ends when `client.complete` says
what the answer is. The timeout is a job that is due later, and answers in place of somebody. Whichever comes first counts.
"""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID  # noqa: TC003 - annotations of jobs are read when they run

from aioqueue import AlreadyFinished, Call, Client, Registry, Worker, current_attempt

registry = Registry(prefix="approval.")
inbox: asyncio.Queue[tuple[int, UUID]] = asyncio.Queue()
"""Stands for the mails that are sent, with a link to answer by."""


@dataclass
class Decision:
    """An answer."""

    by: str
    agreed: bool


@registry.declare
async def approval(order: int) -> Decision:
    """What is waited for. No handler is attached to it: whoever decides completes it."""
    raise NotImplementedError


@registry.job
async def begin(order: int, *, within: float) -> Call[str]:
    """Ask, and go on when there is an answer. All four jobs are stored with this one's outcome, or none."""
    asked = approval(order)
    attempt = current_attempt()
    attempt.enqueue(ask(order, asked.id))
    attempt.enqueue(give_up(asked.id).options(delay=timedelta(seconds=within)))
    return decide(order, asked.output)


@registry.job
async def ask(order: int, approval_id: UUID) -> None:
    """Send a mail with a link, which has the approval's id in it."""
    await inbox.put((order, approval_id))


@registry.job
async def give_up(approval_id: UUID) -> str:
    """The timeout: answer, if nobody has done so."""
    try:
        await current_attempt().client.complete(approval, approval_id, Decision("nobody", agreed=False))
    except AlreadyFinished as error:
        return f"the approval has {error.state} before"
    return "answered"


@registry.job
async def decide(order: int, decision: Decision) -> str:
    """The end of the chain: it's given the answer."""
    return f"order {order} is {'sent' if decision.agreed else 'put back'}, says {decision.by}"


async def answer(client: Client, approval_id: UUID, decision: Decision) -> bool:
    """What the web application does when somebody follows the link: whether it was the first answer."""
    try:
        await client.complete(approval, approval_id, decision)
    except AlreadyFinished:
        return False
    return True


async def run(url: str | None) -> None:
    """One order that somebody agrees to, and one to which nobody says anything."""
    async with Client(url) as client, Worker(client, registry):
        agreed = await client.enqueue(begin(7, within=3600))
        _, approval_id = await inbox.get()
        print("first answer: ", await answer(client, approval_id, Decision("Ann", agreed=True)))
        print("second answer:", await answer(client, approval_id, Decision("Bob", agreed=False)))
        print(await agreed.result(timeout=30))

        forgotten = await client.enqueue(begin(8, within=0.1))
        print(await forgotten.result(timeout=30))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.approval", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url", help="the database; by default AIOQUEUE_URL, else sqlite:///aioqueue.db")
    arguments = parser.parse_args()
    asyncio.run(run(arguments.url))


if __name__ == "__main__":
    main()
