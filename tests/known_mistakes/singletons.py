"""Stores that make mistakes with names that only one worker may have."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aioqueue.testing.memory import _lease, _store
from aioqueue.testing.memory._rows import Database
from tests.known_mistakes.mistake import Mistake, instead_of

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SINGLETONS"]


def _nameless(real: Callable[..., int], *arguments: Any, **told: Any) -> int:
    return real(*arguments, **{**told, "singleton": None})


def _any_name(real: Callable[..., None], database: Database, singleton: str | None) -> None:
    if singleton is not None:
        for lease in list(database.leases.values()):
            if lease.singleton is not None and lease.singleton.casefold() == singleton.casefold():
                real(database, lease.singleton)


def _with_its_lease(real: Callable[..., None], database: Database, singleton: str | None) -> None:
    """Who takes a name over leaves the lease, by which its worker goes on."""
    before = dict(database.leases)
    real(database, singleton)
    for lease_id, lease in before.items():
        if lease_id not in database.leases:
            database.leases[lease_id] = replace(lease, singleton=None)


SINGLETONS: dict[str, Mistake] = {
    "a store in which two have a name": Mistake(
        ((_lease, "has_the_name", lambda *_: False),),
        cases=(
            "singleton/a_renewal_keeps_it",
            "singleton/it_refuses_nothing_else",
        ),
    ),
    "a store in which a name is never free": Mistake(
        ((_lease, "has_the_name", lambda *_: True),),
        cases=(
            "singleton/one_that_has_run_out_is_taken_over",
            "singleton/others_stay",
        ),
    ),
    "a store that forgets names": Mistake(
        (instead_of(Database, "add_lease", _nameless),),
        cases=(
            "singleton/a_renewal_keeps_it",
            "singleton/it_is_free_after_the_end",
        ),
    ),
    "a store in which names are alike": Mistake(
        (instead_of(_store, "make_way", _any_name),), cases=("singleton/only_one_has_it",)
    ),
    "a store in which a name is taken over beside its lease": Mistake(
        (instead_of(_store, "make_way", _with_its_lease),),
        cases=(
            "singleton/one_that_has_run_out_is_taken_over",
            "singleton/others_stay",
        ),
    ),
}
