"""What the database in memory holds, and the rules that it follows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aioqueue.vocabulary._job import SettlementKind, StoredState

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.vocabulary._job import AttemptError, NewJob, Settlement
    from tests.simulation.plan import Refusal


@dataclass
class Row:
    new: NewJob
    created_at: float
    run_at: float
    state: StoredState = StoredState.PENDING
    attempt: int = 0
    claims: int = 0
    lease_id: int | None = None
    started_at: float | None = None
    finished_at: float | None = None
    expires_at: float | None = None
    reschedules: int = 0
    locked_until: float = 0.0
    """Somebody who has nothing to do with us has locked it."""
    refuses: Refusal = ""
    output: bytes | None = None
    outcome: str | None = None
    errors: tuple[AttemptError, ...] = ()
    written: Settlement | None = None
    """The settlement that was written last, until the next claim."""
    written_about_orphan: bool = False


@dataclass(frozen=True)
class Saved:
    """A database at some moment."""

    rows: dict[UUID, Row]
    leases: dict[int, tuple[str, float]]
    last_lease: int


@dataclass
class Rules:
    """What known-bad variants switch off, one at a time."""

    fence_claims: bool = True
    fence_lease: bool = True
    due_check: bool = True
    claim_checks_state: bool = True
    claim_checks_lease: bool = True
    claim_counts: bool = True
    settle_checks_lease: bool = True
    orphans_need_no_lease: bool = True
    orphans_hold_lease: bool = True
    orphans_end_lease: bool = True
    recovered_never_expire: bool = True
    take_respects_expiry: bool = True
    lease_ids_are_new: bool = True
    take_leaves_own: bool = True
    renewal_moves_expiry: bool = True
    renewal_tells_lost: bool = True
    renewal_tells_unheld: bool = True
    release_gives_attempt_back: bool = True
    release_checks_fence: bool = True
    retry_waits: bool = True
    archive_keeps: bool = True
    settle_recognises_repeats: bool = True
    repeats_have_a_writer: bool = True


def without(**off: bool) -> Rules:
    """The rules with some of them changed."""
    return replace(Rules(), **off)


REFUSED = "the row is too good for this"


def accepts(refuses: Refusal, each: Settlement) -> bool:
    """Whether a row can hold what a settlement writes. The least that can be written is a failure of a few words."""
    if refuses == "outcome":
        return each.kind is not SettlementKind.COMPLETED
    if refuses == "all":
        return each.kind is SettlementKind.FAILED and each.error is None
    return True
