"""Whether gates are used here, and whether something has left one since the last look. Asked by the writer's thread."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING

from aioqueue.vocabulary._gates import FAIR

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.vocabulary._gates import GateRules

__all__ = ["GateNews"]

_NEWEST = "SELECT max(id) FROM gate_mark"


class GateNews:
    """What one store knows of marks at gates.

    Attributes:
        used: Whether one of this store's claims, or whoever changes limits here, has had to do with gates: where none has, no
            write looks for marks.
    """

    def __init__(self) -> None:
        self.used = False
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
