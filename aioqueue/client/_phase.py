"""How far a transaction of the client's is: its handles say by it whether their jobs exist yet."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aioqueue.definitions._call import Call
    from aioqueue.events import Event
    from aioqueue.telemetry._tracing import SendSpan

__all__ = ["Phase", "TransactionState"]


class Phase(Enum):
    """How far a transaction is. Its value is what error messages say of it."""

    OPEN = "open"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    UNCLEAR = "its commit is unclear"


class TransactionState:
    """What a transaction has in common with its handles: how far it is, and the calls and spans of what was enqueued in it,
    and what observers are told of it.

    Arguments:
        outer: The transaction's, for one of a savepoint's block, which is there only if both are committed.
    """

    __slots__ = ("_outer", "_phase", "calls", "happened", "spans")

    def __init__(self, outer: TransactionState | None = None) -> None:
        self._outer = outer
        self._phase = Phase.OPEN
        self.calls: list[Call[Any]] = []
        self.spans: list[SendSpan] = []
        self.happened: list[Event] = []

    @property
    def phase(self) -> Phase:
        """How far it is: after a savepoint's block has ended well, as far as the transaction around it."""
        if self._outer is not None and self._phase is not Phase.ROLLED_BACK:
            return self._outer.phase
        return self._phase

    def join_outer(self) -> None:
        """Say that a savepoint's block has ended well: what was enqueued in it is the transaction's from now on."""
        assert self._outer is not None
        self._outer.calls += self.calls
        self._outer.spans += self.spans
        self._outer.happened += self.happened
        self.calls, self.spans, self.happened = [], [], []

    def end(self, phase: Phase) -> None:
        """Say how it ended. Unless it was committed, its calls may be enqueued again."""
        self._phase = phase
        if phase is not Phase.COMMITTED:
            for call in self.calls:
                call.mark_failed()
        for span in self.spans:
            if phase is Phase.COMMITTED:
                span.sent()
            else:
                span.not_committed("unclear" if phase is Phase.UNCLEAR else "rolled_back")
        self.calls, self.spans = [], []
