"""How far a transaction of the client's is: its handles say by it whether their jobs exist yet."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aioqueue.definitions._call import Call
    from aioqueue.telemetry._tracing import SendSpan

__all__ = ["Phase", "TransactionState"]


class Phase(Enum):
    """How far a transaction is. Its value is what error messages say of it."""

    OPEN = "open"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    UNCLEAR = "its commit is unclear"


class TransactionState:
    """What a transaction has in common with its handles: how far it is, and the calls and spans of what was enqueued in it."""

    __slots__ = ("calls", "phase", "spans")

    def __init__(self) -> None:
        self.phase = Phase.OPEN
        self.calls: list[Call[Any]] = []
        self.spans: list[SendSpan] = []

    @property
    def enqueued(self) -> tuple[int, int]:
        """How many calls and spans there are so far."""
        return len(self.calls), len(self.spans)

    def take_back(self, before: tuple[int, int]) -> None:
        """Undo what was enqueued since: a savepoint was rolled back. Its calls may be enqueued again."""
        calls, spans = before
        for call in self.calls[calls:]:
            call.mark_failed()
        for span in self.spans[spans:]:
            span.not_committed("rolled_back")
        del self.calls[calls:], self.spans[spans:]

    def end(self, phase: Phase) -> None:
        """Say how it ended. Unless it was committed, its calls may be enqueued again."""
        self.phase = phase
        if phase is not Phase.COMMITTED:
            for call in self.calls:
                call.mark_failed()
        for span in self.spans:
            if phase is Phase.COMMITTED:
                span.sent()
            else:
                span.not_committed("unclear" if phase is Phase.UNCLEAR else "rolled_back")
        self.calls, self.spans = [], []
