"""Repeats writes for a bounded time: while the database is away, or somebody's open transaction holds what they need."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, TypeVar

import anyio

from aioqueue.errors import StoreContended, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["Tries"]

T = TypeVar("T")

_PAUSES_SECONDS = (0.05, 0.2, 0.5, 1.0, 2.0)
"""Between tries while the database is away. The last one is repeated."""
_CONTENDED_PAUSE_SECONDS = 0.2


class Tries:
    """What one opening of a client repeats its writes with, outside of the user's transactions.

    Arguments:
        retry_for: Seconds for which a write is tried again.

    Attributes:
        retry_for: As given.
        closing: Set when the client is being closed: nothing is tried again from then on.
    """

    def __init__(self, retry_for: float) -> None:
        self.retry_for = retry_for
        self.closing = anyio.Event()

    async def until_written(
        self,
        write: Callable[[bool], Awaitable[T]],
        log: Callable[[], None],
        *,
        repeated: bool = False,
        gathered: bool = False,
    ) -> T:
        """Try again until `retry_for` is over: after an unclear commit, `write` does only what's missing.

        What was gathered from several callers doesn't wait here for what one of them needs (see `KeyedInserts`).

        Arguments:
            write: Told whether an earlier try may have written something.
            log: Called before another try, where the database was away: says what couldn't be done.
            repeated: Whether the first try here is a repetition already.
            gathered: Whether it's for several callers.

        Raises:
            StoreUnavailable: All tries have failed with it; the last one's error.
        """
        deadline = anyio.current_time() + self.retry_for
        pauses = itertools.chain(_PAUSES_SECONDS, itertools.repeat(_PAUSES_SECONDS[-1]))
        while True:
            try:
                return await write(repeated)
            except StoreUnavailable as error:
                contended = isinstance(error, StoreContended)
                left = deadline - anyio.current_time()
                if (contended and gathered) or left <= 0 or self.closing.is_set():
                    raise
                if not contended:
                    log()
                pause = _CONTENDED_PAUSE_SECONDS if contended else next(pauses)
                pause *= random.uniform(0.5, 1.0)  # noqa: S311 - keeps processes apart
                with anyio.move_on_after(min(pause, left)):
                    await self.closing.wait()
                # What was contended has stored nothing: what is there by the next try is somebody else's.
                repeated = repeated or not contended
