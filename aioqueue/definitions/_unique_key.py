"""What belongs to a unique key among a call's options: which go together, and the key that arguments make (`Unique.by`)."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Protocol

import orjson

from aioqueue.definitions._call_options import LONGEST_LABEL_BYTES
from aioqueue.errors import ArgumentsError, ConflictingOptions

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from aioqueue.vocabulary._unique import Unique

__all__ = ["HasDefaults", "argument_key", "check_unique"]


class HasDefaults(Protocol):
    """What is asked of a job type here."""

    @property
    def name(self) -> str: ...

    def read_default(self, parameter: str) -> object:
        """The default of a parameter that wasn't passed, as a JSON value.

        Raises:
            ConflictingOptions: There is no such parameter, it has no default, or none that can be stored.
        """
        ...

    def has_set(self, parameter: str, payload: bytes) -> bool:
        """Whether a parameter has a set, or a value with one within: as it was passed, or by default."""
        ...


def check_unique(unique: Unique | None, options: Mapping[str, object], *, waits: bool) -> None:
    """Refuse options that make no sense together with a unique key, or without one.

    Arguments:
        unique: The call's.
        options: All of the call's.
        waits: Whether it waits for other jobs.

    Raises:
        ConflictingOptions: They contradict each other.
    """
    key = options.get("key")
    if unique is not None:
        if key is None and not unique.by:
            raise ConflictingOptions(
                "unique=True needs a key: at most one unfinished job of the type may have it. Give key=, or "
                "unique=Unique(by=...) with names of arguments"
            )
        if key is not None and unique.by:
            raise ConflictingOptions(
                f"the key is made of arguments, by={unique.by!r}: leave out key=, or take it back with None"
            )
    if "max_delay" in options:
        _check_max_delay(unique, options, waits=waits)


def _check_max_delay(unique: Unique | None, options: Mapping[str, object], *, waits: bool) -> None:
    delay, longest = options.get("delay"), options["max_delay"]
    if unique is None or unique.on_conflict != "replace":
        raise ConflictingOptions(
            "max_delay bounds how far other calls can put off a job by replacing it: it needs "
            'unique=Unique(on_conflict="replace")'
        )
    if waits:
        raise ConflictingOptions(
            "max_delay says when a job starts at the latest, and one that waits for others (outputs, after=) starts after them"
        )
    if not isinstance(delay, (int, float)) or not isinstance(longest, (int, float)):
        raise ConflictingOptions("max_delay bounds the delay that each call begins anew: it needs delay=, and not at=")
    if longest < delay:
        raise ConflictingOptions(f"max_delay ({longest:g} s) is less than the delay ({delay:g} s)")


def argument_key(job_type: HasDefaults, payload: bytes, placed: Collection[str], by: Collection[str]) -> str:
    """Make a key of arguments: those named, as JSON, sorted by name; or, where that's too long for a key, a hash of it.

    Arguments:
        job_type: The call's.
        payload: The arguments as stored: those that were passed.
        placed: The names of those in which outputs of other jobs stand.
        by: The names of those that make the key.

    Raises:
        ConflictingOptions: There is no such argument, or it has an output within.
        ArgumentsError: One has a set in it, which each process would write in another order: each would have another key.
    """
    passed: Mapping[str, object] = orjson.loads(payload)
    if waiting := sorted(set(by) & set(placed)):
        raise ConflictingOptions(
            f"{job_type.name}: {', '.join(map(repr, waiting))} can't be in the key (by=), since it has an output in it, which "
            "isn't there before the job runs: give key="
        )
    values = {name: passed[name] if name in passed else job_type.read_default(name) for name in by}
    for name in by:
        if job_type.has_set(name, payload):
            raise ArgumentsError(
                f"{job_type.name}: {name!r} has a set in it, which has no order, and can't be in the key (by=): take a sorted "
                "list, or give key=",
                path=name,
            )
    written = orjson.dumps(values, option=orjson.OPT_SORT_KEYS)
    return written.decode() if len(written) <= LONGEST_LABEL_BYTES else f"sha256:{hashlib.sha256(written).hexdigest()}"
