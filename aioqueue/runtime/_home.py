"""Where something was opened: an event loop, its thread and its process, in which alone it may be used."""

from __future__ import annotations

import asyncio
import os

from aioqueue.errors import ClientClosed

__all__ = ["Home", "check_process", "is_inherited"]

# Each call compares it: asking the system each time costs more than the rest of the check.
_this_process = os.getpid()


def _note_this_process() -> None:
    global _this_process
    _this_process = os.getpid()


os.register_at_fork(after_in_child=_note_this_process)


def is_inherited(process: int) -> bool:
    """Whether what a process has opened is another's here: this one was forked from it."""
    return _this_process != process


def check_process(process: int, what: str) -> None:
    """Refuse to use what another process has opened: connections can't be shared over a fork.

    Arguments:
        process: The id of the process that opened it.
        what: Its name, as the beginning of a sentence.

    Raises:
        ClientClosed: This process isn't that one.
    """
    if is_inherited(process):
        raise ClientClosed(
            f"{what} was opened before this process was forked (process {process} has it), and a connection can't be shared "
            "over a fork: open another one in each process, after the fork"
        )


class Home:
    """The event loop, and with it the thread, and the process in which something was opened.

    Made by whoever opens it, in its event loop.

    Attributes:
        loop: The event loop.
        process: The process's id.
        closed: Whether it was closed there; set by whoever closes it.
    """

    __slots__ = ("closed", "loop", "process")

    def __init__(self) -> None:
        self.closed = False
        self.loop = asyncio.get_running_loop()
        self.process = _this_process

    @property
    def inherited(self) -> bool:
        """Whether this process is a fork of the one that opened it."""
        return is_inherited(self.process)

    @property
    def gone(self) -> bool:
        """Whether nothing can be used or closed there any more: this is a fork, or the event loop was closed."""
        return self.inherited or self.loop.is_closed()

    def check(self, what: str) -> None:
        """Refuse to use something elsewhere.

        Arguments:
            what: Its name, as the beginning of a sentence.

        Raises:
            ClientClosed: This is another process, another event loop, or a thread without one.
        """
        check_process(self.process, what)
        if self.loop is not _running_loop():
            raise ClientClosed(
                f"{what} was opened in another event loop: open another one in each loop (asyncio.run makes a new one)"
            )

    def check_from_thread(self, what: str) -> None:
        """Refuse to go on with what has its own thread, and ends when that which was opened is closed.

        Arguments:
            what: Its name, as the beginning of a sentence.

        Raises:
            ClientClosed: That was closed, or this is another process.
        """
        check_process(self.process, what)
        if self.closed:
            raise ClientClosed(f"{what} is of a store that was closed")


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
