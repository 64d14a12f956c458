"""A job whose own writes and whose outcome are one transaction, so that each transfer is booked once, whatever happens.

    python -m examples.completion [--url URL]

A handler that returns a value has done its work before its outcome is written: if the process dies in between, it runs again,
and would book again. Here both are committed by `completion()`, or neither. Each transfer is interrupted in its first attempt.
"""

from __future__ import annotations

import argparse
import asyncio
import re

from aioqueue import Client, Fixed, Registry, Retry, Worker, current_attempt

registry = Registry(prefix="completion.")


@registry.job(retry=Retry(max_attempts=3, backoff=Fixed(0.05)))
async def transfer(sender: str, receiver: str, amount: int) -> int:
    """Take from one account, and give to another. The result is what the sender has left."""
    attempt = current_attempt()
    change = sql("update example_account set balance = balance + $1 where name = $2", attempt.client)
    async with attempt.completion() as tx:
        await tx.execute(change, -amount, sender)
        if attempt.number == 1:
            raise ConnectionError("something happens in the middle: nothing of it is kept")
        await tx.execute(change, amount, receiver)
        (row,) = await tx.fetch(sql("select balance from example_account where name = $1", attempt.client), sender)
        left: int = row[0]
        attempt.enqueue(tell(receiver, amount))  # stored with the outcome, and dropped where that isn't written
        return tx.done(left)


@registry.job
async def tell(name: str, amount: int) -> None:
    """Begins when the transfer has been committed, and only then."""
    told.append(f"{name} has got {amount}")


told: list[str] = []


def sql(statement: str, client: Client) -> str:
    """Write the placeholders as the database does: PostgreSQL `$1`, SQLite `?`."""
    return re.sub(r"\$\d", "?", statement) if client.store.description.startswith("sqlite") else statement


async def run(url: str | None) -> None:
    """Make two accounts, and transfer three times at once."""
    async with Client(url) as client:
        async with client.transaction() as tx:
            await tx.execute("drop table if exists example_account")
            await tx.execute("create table example_account (name varchar(20) primary key, balance integer not null)")
            await tx.execute("insert into example_account values ('ann', 100), ('bob', 0)")
        async with Worker(client, registry):
            handles = await client.enqueue_many([transfer("ann", "bob", 20) for _ in range(3)])
            left = [await handle.result(timeout=30) for handle in handles]
            attempts = [(await handle.snapshot()).attempt for handle in handles]
            while len(told) < 3:
                await asyncio.sleep(0.01)
        async with client.transaction() as tx:
            accounts = [tuple(row) for row in await tx.fetch("select name, balance from example_account order by name")]
            await tx.execute("drop table example_account")
    print("left:    ", sorted(left))
    print("attempts:", attempts)
    print("accounts:", accounts)
    print("told:    ", told)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.completion", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url", help="the database; by default AIOQUEUE_URL, else sqlite:///aioqueue.db")
    arguments = parser.parse_args()
    asyncio.run(run(arguments.url))


if __name__ == "__main__":
    main()
