"""All mistakes of stores, made by the store in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.known_mistakes.cancelling import CANCELLING
from tests.known_mistakes.chains import CHAINS
from tests.known_mistakes.chains_looking import LOOKING_AT_CHAINS
from tests.known_mistakes.claims import CLAIMS
from tests.known_mistakes.completing import COMPLETING
from tests.known_mistakes.events import EVENTS
from tests.known_mistakes.gates import LIMITS
from tests.known_mistakes.gates_in_order import IN_ORDER
from tests.known_mistakes.leases import LEASES
from tests.known_mistakes.looking import LOOKING
from tests.known_mistakes.pauses import PAUSES
from tests.known_mistakes.producing import PRODUCING
from tests.known_mistakes.progress import PROGRESS
from tests.known_mistakes.retention import RETENTION
from tests.known_mistakes.schedules import SCHEDULES
from tests.known_mistakes.settlements import SETTLEMENTS
from tests.known_mistakes.singletons import SINGLETONS
from tests.known_mistakes.tending import TENDING
from tests.known_mistakes.ticks import TICKS
from tests.known_mistakes.unique import UNIQUE
from tests.known_mistakes.waiting import WAITING
from tests.known_mistakes.webhooks import WEBHOOKS

if TYPE_CHECKING:
    from tests.known_mistakes.mistake import Mistake

__all__ = ["STORE_MISTAKES"]

STORE_MISTAKES: dict[str, Mistake] = {
    **CLAIMS,
    **SETTLEMENTS,
    **LEASES,
    **PRODUCING,
    **LOOKING,
    **CHAINS,
    **LOOKING_AT_CHAINS,
    **WAITING,
    **TENDING,
    **COMPLETING,
    **UNIQUE,
    **CANCELLING,
    **PROGRESS,
    **RETENTION,
    **EVENTS,
    **WEBHOOKS,
    **SCHEDULES,
    **TICKS,
    **PAUSES,
    **SINGLETONS,
    **LIMITS,
    **IN_ORDER,
}
"""By name."""
