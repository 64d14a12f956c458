"""How chains ended for which others wait: kept once for all of them. The functions run inside an open write transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioqueue.sqlite._rows import dump, errors_of, load, text_of
from aioqueue.sqlite._rows_chain import LAST_STEPS
from aioqueue.sqlite._rows_ids import id_of
from aioqueue.store_rules._causes import cause_of
from aioqueue.vocabulary._blockers import ChainEnd
from aioqueue.vocabulary._job import StoredState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aioqueue.sqlite._connections_statements import Statements

__all__ = ["End", "archived_ends", "store_ends", "stored_states"]

_STORE = """
INSERT OR REPLACE INTO chain_end (chain_id, state, type, output, cause, untold, take_along, ended_at)
SELECT n.value ->> 0, n.value ->> 1, n.value ->> 2, n.value ->> 3, n.value ->> 4, 1, n.value ->> 5, :now
FROM json_each(:rows) AS n WHERE EXISTS (SELECT 1 FROM blocker WHERE blocker.chain_id = n.value ->> 0)
RETURNING chain_id
"""

_STATES = """
SELECT json_group_object(chain_id, state) FROM chain_end WHERE chain_id IN (SELECT value FROM json_each(:ids))
"""

_ARCHIVED = f"""
WITH {LAST_STEPS}
SELECT place, CAST(archive.type AS TEXT), archive.state, CAST(archive.output AS TEXT), CAST(archive.errors AS TEXT)
FROM step CROSS JOIN archive ON archive.id = step.archived WHERE live IS NULL AND archive.state <> 5
"""


@dataclass(frozen=True, slots=True)
class End:
    """How a chain has ended.

    Attributes:
        chain_id: As it's stored.
        state: How.
        type: The type of its last step, if that is known.
        output: Its output as JSON, if it has completed.
        cause: If it hasn't: what became of the first that didn't.
        take_along: Whether those that wait for it are deleted too.
    """

    chain_id: str
    state: ChainEnd
    type: str | None = None
    output: str | None = None
    cause: str = ""
    take_along: bool = False

    @classmethod
    def deleted(cls, chain_id: str, job_type: str | None = None, *, take_along: bool = False) -> End:
        """That of a chain that is gone."""
        cause = cause_of(ChainEnd.DELETED, job_type, id_of(chain_id))
        return cls(chain_id, ChainEnd.DELETED, job_type, None, cause, take_along)

    @property
    def row(self) -> list[object]:
        """What storing it takes."""
        return [self.chain_id, int(self.state), self.type, self.output, self.cause, int(self.take_along)]


def store_ends(connection: Statements, ends: Iterable[End], now: int) -> list[str]:
    """Store how chains ended, as untold, as far as others wait for them, or have waited. Returns the ids of those."""
    rows = dump([end.row for end in ends])
    return [text_of(row[0]) for row in connection.execute(_STORE, {"rows": rows, "now": now}).fetchall()]


def archived_ends(connection: Statements, chains: list[str]) -> list[End | None]:
    """Look in the archive how chains ended, by their own ids: None for each that lives, has no end, or isn't there."""
    found: dict[int, End] = {}
    place: int
    for place, job_type, state, output, errors in connection.execute(_ARCHIVED, {"ids": dump(chains)}).fetchall():
        end, type_name = _end_of(state), text_of(job_type)
        if end is ChainEnd.COMPLETED:
            found[place] = End(chains[place], end, type_name, None if output is None else text_of(output))
        else:
            history = errors_of(text_of(errors))
            cause = cause_of(end, type_name, id_of(chains[place]), history[-1] if history else None)
            found[place] = End(chains[place], end, type_name, None, cause)
    return [found.get(place) for place in range(len(chains))]


def stored_states(connection: Statements, chains: Sequence[str]) -> dict[str, int]:
    """How these chains ended, as far as that is stored for others, though nothing else may be left of them."""
    states: dict[str, int] = load(connection.execute(_STATES, {"ids": dump(chains)}).fetchone()[0])
    return states


def _end_of(state: Any) -> ChainEnd:
    """What an archived step's state means to others; an odd one shows as failed."""
    if state in (StoredState.COMPLETED, StoredState.CANCELLED):
        return ChainEnd(state)
    return ChainEnd.FAILED
