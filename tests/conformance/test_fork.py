"""A store that was opened before a fork: what it says in the child, and that its parent doesn't notice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# In a process of its own: a fork of the tests' process would carry along whatever else runs there.
SCRIPT = """
import asyncio, os, sys, threading, traceback
from aioqueue.client import Client
from aioqueue.errors import ClientClosed
from aioqueue.testing.conformance._tools import HOUR, job, raises, settlement, start_one, written
from aioqueue.testing.conformance._verbs import blocking_verbs, each_verb_raises
from aioqueue.vocabulary._job import SettlementKind

url, closes = sys.argv[1], sys.argv[2] == "closes"


def told_of_the_fork(call):
    try:
        call()
    except ClientClosed as error:
        assert "fork" in str(error), error
    else:
        raise AssertionError("it must raise ClientClosed in a fork")


async def in_a_fork(check):
    child = os.fork()
    if child:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        return
    codes = []

    def run():
        try:
            asyncio.run(check())
            codes.append(0)
        except BaseException:
            traceback.print_exc()

    thread = threading.Thread(target=run)  # the child's main thread is inside the parent's event loop
    thread.start()
    thread.join()
    sys.stderr.flush()
    os._exit(0 if codes else 1)


async def main():
    store = Client(url).store
    await store.open()
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id)
    session = store.lease_session()
    await asyncio.to_thread(session.connect)
    block = store.transaction()
    transaction = await block.__aenter__()

    async def uses_the_transaction():
        await raises(ClientClosed, transaction.insert([job()]), "an insert in a parent's transaction")
        await raises(ClientClosed, block.__aexit__(None, None, None), "the end of a parent's transaction")

    async def uses_the_store():
        for call in blocking_verbs(store).values():
            told_of_the_fork(call)
        told_of_the_fork(session.connect)
        told_of_the_fork(lambda: session.renew(lease_id, HOUR, []))
        session.close()
        await each_verb_raises(ClientClosed, store, claimed, "a store that was opened before a fork")
        assert store.description and not store.troubles
        assert await store.migrate() == []
        if closes:
            await store.close()
            await store.close()
            await raises(ClientClosed, store.stats(), "a verb after the child has closed the store")
        await store.open()
        await store.insert([job("child")])
        await store.close()

    await in_a_fork(uses_the_transaction)
    await transaction.insert([job("parent")])
    await block.__aexit__(None, None, None)
    await in_a_fork(uses_the_store)
    assert (await asyncio.to_thread(session.renew, lease_id, HOUR, [claimed.claim])).valid
    await written(store, settlement(claimed, SettlementKind.COMPLETED, output=b"1"))
    assert {"child", "parent"} <= set((await store.stats()).types)
    await asyncio.to_thread(session.close)
    await store.close()

asyncio.run(main())
"""


@pytest.mark.parametrize("closes", ["closes", "opens"])
def test_a_fork_is_told_and_may_open_the_store_anew(each_url: str, closes: str) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "ignore::DeprecationWarning", "-c", SCRIPT, each_url, closes],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "never closed" not in done.stderr
