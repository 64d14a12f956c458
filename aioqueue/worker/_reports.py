"""What one attempt has said of its progress, and how far that is stored: `ProgressWriter` sees to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from aioqueue.vocabulary._phases import Progress

__all__ = ["Reports"]


class Reports:
    """What one attempt says of its progress.

    Attributes:
        latest: What was said last, if that isn't being written or written yet.
        queued: Whether the writer knows that there is something.
        writing: Whether an earlier value is being written.
        due: When the next value may be written, by the event loop's clock.
        closed: Whether nothing more is written: its attempt has ended.
        refused: Whether the log has told that the store refuses it.
        waiter: Who waits until nothing is left to be written.
    """

    __slots__ = ("closed", "due", "latest", "queued", "refused", "waiter", "writing")

    def __init__(self) -> None:
        self.latest: Progress | None = None
        self.due = 0.0
        self.queued = self.writing = self.closed = self.refused = False
        self.waiter: asyncio.Future[None] | None = None

    @property
    def unwritten(self) -> bool:
        """Whether the last value isn't stored yet."""
        return self.latest is not None or self.writing

    def tell(self) -> None:
        """Wake who waits, if nothing is left to be written, or nothing will be."""
        if self.waiter is not None and not self.waiter.done() and (self.closed or not self.unwritten):
            self.waiter.set_result(None)
