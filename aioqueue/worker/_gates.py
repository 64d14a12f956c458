"""At which gates a worker's jobs wait, and the limits that its code defines, which are stored before these jobs run."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

from aioqueue.errors import ClientClosed, NotSupported, StoreUnavailable
from aioqueue.vocabulary._abilities import SupportsGates, SupportsReconnects
from aioqueue.vocabulary._gates import JOB_LIMIT, RATE
from aioqueue.worker._backoff import Backoff
from aioqueue.worker._bounded_calls import BoundedCalls, Hangs
from aioqueue.worker._lasting_task import LastingTask

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from aioqueue.abc import Store
    from aioqueue.vocabulary._gates import GateRules, NewLimit
    from aioqueue.worker._health import Troubles
    from aioqueue.worker._wakeup import Wakeup

__all__ = ["Asked", "Gates"]

EVERY_SECONDS = 30.0
"""Between two looks whether the store had to connect anew: what is there now may be another database, or an older one."""
AGAIN_SECONDS = 1.0
"""Until limits that couldn't be stored are tried again, the first time."""
_STATEMENT_SECONDS = 20.0
"""That a statement may take until it's taken for one that hangs."""
_WITHHELD_SECONDS = 1.0
"""Until the main loop looks again for types that it mayn't claim yet, unless it's woken, as it is once it may."""


class Asked(TypedDict, total=False):
    """What claims are told of gates: nothing, for stores that know none."""

    gates: Mapping[str, GateRules]


class Gates:
    """Tells claims of the gates at which jobs wait, and stores the limits that code defines, in a task of its own.

    Until its limits are stored no job of a type is claimed: without them it would run unlimited. Others are claimed meanwhile.

    Arguments:
        store: Where the jobs are.
        rules: By the type's name, and by its aliases: at which gates its jobs wait, of those that do.
        limits: That the code of these types defines.
        dry_run: Whether the worker only tries jobs out: then nothing is stored, and limits are as others have stored them.
        troubles: Where errors show, as `limits`.
        wakeup: Wakes the main loop, once types may be claimed, and once the store has been closed.

    Raises:
        NotSupported: There are rules, and the store knows no gates.
    """

    def __init__(
        self,
        store: Store,
        rules: Mapping[str, GateRules],
        limits: Sequence[NewLimit],
        *,
        dry_run: bool,
        troubles: Troubles,
        wakeup: Wakeup,
    ) -> None:
        if rules and not isinstance(store, SupportsGates):
            some = ", ".join(sorted({each.type for each in rules.values()})[:10])
            raise NotSupported(
                f"{store.description} knows no limits, rates, sequences or fairness, and these job types have some: {some}",
                ability="put_limits",
            )
        self._store = store if isinstance(store, SupportsGates) else None
        self._connections = store if isinstance(store, SupportsReconnects) else None
        self._rules = rules
        self._limits = () if dry_run else tuple(limits)
        self._troubles = troubles
        self._wakeup = wakeup
        self._unstored = {each.name for each in self._limits}
        self._seen = self._reconnects()
        self._after_errors = Backoff(AGAIN_SECONDS, EVERY_SECONDS)
        self._calls = BoundedCalls("aioqueue limits")
        self._task = LastingTask("aioqueue limits in code", self._calls, self._after_errors.next)

    # -- what claims are told -----------------------------------------------------------------------------------------

    @property
    def looked_at(self) -> bool:
        """Whether the store's claims look at gates."""
        return self._store is not None

    def asked(self, names: Iterable[str]) -> Asked:
        """What a claim of these types is told. Any job may have a sequence of its own, also where no type has rules."""
        if self._store is None:
            return {}
        return {"gates": {name: self._rules[name] for name in names if name in self._rules} if self._rules else {}}

    def claimable(self, names: Sequence[str]) -> Sequence[str]:
        """Of types, those whose limits are stored."""
        if not self._unstored:
            return names
        return [name for name in names if not self._waits(self._rules.get(name))]

    @property
    def claimable_in(self) -> float:
        """Seconds until it's worth while to ask again for types that weren't claimable."""
        return _WITHHELD_SECONDS

    def _waits(self, rules: GateRules | None) -> bool:
        if rules is None:
            return False
        return (rules.limit and JOB_LIMIT + rules.type in self._unstored) or (
            rules.rate and RATE + rules.type in self._unstored
        )

    # -- what the others ask for --------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin to store limits, at once."""
        if self._store is not None and self._limits:
            self._task.begin(partial(self._run, self._store))

    def stop(self) -> None:
        """Begin nothing more, and interrupt the statement that is under way. May be called again."""
        self._task.stop()

    @property
    def tasks(self) -> list[asyncio.Task[Any]]:
        """What there is to wait for once it's stopped."""
        return self._task.tasks

    def let_go(self) -> None:
        """Wait for nothing any more."""
        self._task.let_go()

    # -- the loop -----------------------------------------------------------------------------------------------------

    async def _run(self, store: SupportsGates) -> None:
        stored = False
        while True:
            reconnects = self._reconnects()
            if not stored or reconnects != self._seen:
                try:
                    stored = await self._put(store)
                except ClientClosed as error:
                    self._wakeup.fail(error)
                    return
                if stored:
                    self._seen = reconnects
            if not stored:
                await asyncio.sleep(self._after_errors.next())
                continue
            self._after_errors.reset()
            await asyncio.sleep(EVERY_SECONDS * random.uniform(0.8, 1.0))  # noqa: S311 - not for secrets

    def _reconnects(self) -> int:
        return 0 if self._connections is None else sum(self._connections.reconnects.values())

    async def _put(self, store: SupportsGates) -> bool:
        """Store all; if that is refused each by itself, so that a bad one keeps only its own type. Returns whether all are."""
        error = await self._put_some(store, self._limits)
        if error is not None and len(self._limits) > 1 and not isinstance(error, StoreUnavailable | Hangs):
            errors = [await self._put_some(store, [each]) for each in self._limits]
            error = next((each for each in errors if each is not None), None)
        if error is not None:
            self._troubles.add("limits", error)
            return False
        self._troubles.clear("limits")
        return True

    async def _put_some(self, store: SupportsGates, limits: Sequence[NewLimit]) -> Exception | None:
        """Store some, all or none. Returns why that has failed."""
        try:
            await self._calls.call(store.put_limits(limits, defined=True), _STATEMENT_SECONDS)
        except ClientClosed:
            raise
        except Exception as error:  # noqa: BLE001 - logged by the troubles; it's tried again
            return error
        self._unstored.difference_update(each.name for each in limits)
        self._wakeup.wake()
        return None
