"""A handler of logging's that hangs costs no lease: what the lease's thread logs is handed on by another one."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import pytest

from aioqueue import Client, Registry, Worker
from aioqueue.runtime import _log_apart
from aioqueue.runtime._log_apart import logging_apart
from tests.processes import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.worker.faults import Faults

pytestmark = pytest.mark.anyio

logger = logging.getLogger("aioqueue.worker")


class Hanging(logging.Handler):
    """Hangs with the first record until it's let go, and remembers what comes."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs, self.let_go = threading.Event(), threading.Event()
        self.texts: list[str] = []
        self.threads: set[str | None] = set()

    def emit(self, record: logging.LogRecord) -> None:
        if str(record.threadName).startswith(("aioqueue lease", "like a lease's")):
            self.hangs.set()
            self.let_go.wait(120)
        self.texts.append(record.getMessage())
        self.threads.add(record.threadName)


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    handler = Hanging()
    logger.addHandler(handler)
    yield handler
    handler.let_go.set()
    logger.removeHandler(handler)


async def test_renewals_go_on_while_a_handler_hangs(client: Client, faults: Faults, hanging: Hanging) -> None:
    """Soon the event loop hangs too, when it logs that renewals work again: a handler has a lock."""
    registry = Registry()
    registry.job(lambda: None, name="nothing")
    async with Worker(client, registry, lease=3) as worker:
        faults.failing.add("renew")
        await until(hanging.hangs.is_set, "the warning, in which the handler hangs")
        faults.failing.clear()
        faults.let_go_after("renew", 3, hanging.let_go)
        await until(hanging.let_go.is_set, "renewals that work")
        assert worker.health().lease_valid
    assert [text for text in hanging.texts if "renew fails, and is tried again" in text]


def lost(count: int) -> str:
    return f"{count} records of the thread that renews leases were lost: a logging handler took too long, or raised"


def log_in_a_thread(count: int) -> threading.Thread:
    def work() -> None:
        with logging_apart():
            for number in range(count):
                logger.warning("about the lease %d", number)

    thread = threading.Thread(target=work, name="like a lease's")
    thread.start()
    return thread


def test_records_come_in_order_as_those_of_their_thread(hanging: Hanging) -> None:
    hanging.let_go.set()
    log_in_a_thread(100).join()
    assert hanging.texts == [f"about the lease {number}" for number in range(100)]
    assert hanging.threads == {"like a lease's"}


def test_what_waits_is_bounded(hanging: Hanging, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_log_apart, "_LAST_SECONDS", 0.01)
    log_in_a_thread(1000).join()  # the thread ends all the same
    hanging.let_go.set()
    log_in_a_thread(0)
    with _log_apart._apart._changed:
        assert _log_apart._apart._changed.wait_for(lambda: not _log_apart._apart._handing_on, 60)
    *texts, last = hanging.texts
    assert 200 <= len(texts) <= 201
    assert last == lost(1000 - len(texts))


def test_a_handler_that_raises_costs_its_record_which_is_counted(hanging: Hanging, monkeypatch: pytest.MonkeyPatch) -> None:
    """The warning may be refused too: its number isn't lost, and comes after the next record."""
    hanging.let_go.set()
    refused = {"about the lease 0", lost(1)}

    def emit(record: logging.LogRecord) -> None:
        if (text := record.getMessage()) in refused:
            raise OSError("no disk")
        hanging.texts.append(text)

    monkeypatch.setattr(hanging, "emit", emit)
    log_in_a_thread(3).join()
    assert hanging.texts == ["about the lease 1", "about the lease 2"]
    refused.clear()
    log_in_a_thread(1).join()
    assert hanging.texts[2:] == ["about the lease 0", lost(1)]


def test_other_threads_log_as_before(hanging: Hanging) -> None:
    hanging.let_go.set()
    log_in_a_thread(1).join()
    logger.warning("at once")
    assert hanging.texts[-1] == "at once"
