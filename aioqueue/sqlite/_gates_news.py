"""Whether gates are used here, and whether something has left one since the last look. Asked by the writer's thread."""

from __future__ import annotations

import logging
import sqlite3
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from aioqueue.runtime._log import event
from aioqueue.vocabulary._gates import FAIR

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioqueue.errors import AioqueueError, StoreError
    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.vocabulary._gates import GateRules

__all__ = ["GateNews", "PassedOver", "Refusals"]

logger = logging.getLogger("aioqueue.sqlite")

_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 60.0

_PASSED_OVER_SECONDS = 60.0
_MOST_PASSED_OVER = 20

_NEWEST = "SELECT max(id) FROM gate_mark"


class Refusals:
    """Work before claims that is refused as a whole: told in the log once, and tried again after pauses, until it's done.

    Without them claims would try it again and again, and nobody would wait.
    """

    def __init__(self) -> None:
        self._count = 0
        self._until = 0.0

    @property
    def wait(self) -> float:
        """Seconds until it's tried again; 0 if it may be done now."""
        return max(0.0, self._until - time.monotonic()) if self._count else 0.0

    def refused(self, error: StoreError) -> None:
        """Note that it couldn't be done."""
        if not self._count:
            logger.error("jobs can't be let come to a claim: %s", error, extra=event("store.gates_refused"))
        self._until = time.monotonic() + min(_FIRST_PAUSE_SECONDS * 2**self._count, _LONGEST_PAUSE_SECONDS)
        self._count = min(self._count + 1, 10)

    def done(self) -> None:
        """Note that it was done."""
        self._count = 0


class PassedOver:
    """Jobs that refuse to be let come: each is left alone for a minute, so that it keeps no others of its gate back."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def add(self, job_id: str, error: AioqueueError) -> bool:
        """Pass over a job, and tell of it. Returns whether it's remembered: of many only the first ones are."""
        why = event("store.row_passed_over", job_id=job_id)
        logger.error("job %s is passed over at its gate: %s", job_id, error, extra=why)
        if len(self.ids) >= _MOST_PASSED_OVER:
            return False
        self._until[job_id] = time.monotonic() + _PASSED_OVER_SECONDS
        return True

    @property
    def ids(self) -> list[str]:
        """Those that are passed over at the moment."""
        now = time.monotonic()
        self._until = {job_id: until for job_id, until in self._until.items() if until > now}
        return list(self._until)


class GateNews:
    """What one store knows of marks at gates.

    Attributes:
        used: Whether one of this store's claims, or whoever changes limits here, has had to do with gates: where none has, no
            write looks for marks.
        promotion: Whether that is refused.
        passed_over: Jobs that refuse to be let come.
        turns: Whether letting jobs come in turns is refused.
    """

    def __init__(self) -> None:
        self.used = False
        self.promotion = Refusals()
        self.turns = Refusals()
        self.passed_over = PassedOver()
        self._told = 0
        self._turns: dict[str, bool] = {}

    def claims(self, types: Sequence[str], rules: Mapping[str, GateRules]) -> None:
        """Note of which types the values take turns, by the rules of a claim."""
        self.used = self.used or bool(rules)
        self._turns.update({FAIR + name: False for name in types if name not in rules})
        self._turns.update({FAIR + rule.type: rule.fair_by is not None for rule in rules.values()})

    def has_no_turns(self, name: str) -> bool:
        """Whether the jobs of a type are claimed here without turns, by the name of its lanes."""
        return not self._turns.get(name, True)

    def look(self, connection: Statements) -> bool:
        """Whether marks were left since the last look."""
        # Whether the file still has its tables is a matter for those who write.
        with suppress(sqlite3.Error):
            newest = connection.execute(_NEWEST, {}).fetchone()[0]
            if newest is not None and newest > self._told:
                self._told = newest
                return True
        return False
