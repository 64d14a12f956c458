"""Reads at which gates the jobs of a type wait, and works out what that means for one call."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from aioqueue.definitions._gates import OF_METADATA, InSequence, Limit, Rate, check_by
from aioqueue.definitions._names import check_shared_limit
from aioqueue.errors import ArgumentsError, ConfigurationError, NotSupported
from aioqueue.vocabulary._abilities import SupportsGates
from aioqueue.vocabulary._gate_values import sequence_of
from aioqueue.vocabulary._gates import By, GateRules, SequenceMember
from aioqueue.vocabulary._safe_text import safe_repr
from aioqueue.vocabulary._unordered import has_set

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from aioqueue.vocabulary._codec import Placed
    from aioqueue.vocabulary._new_job import NewJob

__all__ = [
    "GATE_OPTIONS",
    "GateOptions",
    "member_of",
    "read_gate_options",
    "refuse_sequences",
    "refuse_unordered_values",
    "refuse_waiting_values",
    "rules_of",
]

_SHORTEST_ALIKE = 4
"""Letters of the shortest name that is compared with others: of two short ones either may be meant."""

GATE_OPTIONS = frozenset({"limit", "rate", "sequence_by", "fairness_by"})


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOptions:
    """What was given of a job type's gates, validated.

    Attributes:
        limit: Its own limit, the name of the one that it shares, both, or neither.
        rate, sequence_by, fairness_by: As `Registry.job` says; None without.
    """

    limit: tuple[Limit | str, ...] = ()
    rate: Rate | None = None
    sequence_by: InSequence | None = None
    fairness_by: str | None = None

    @property
    def own(self) -> Limit | None:
        """Its own limit."""
        return next((each for each in self.limit if isinstance(each, Limit)), None)

    @property
    def shared(self) -> str | None:
        """The name of the limit that it shares."""
        return next((each for each in self.limit if isinstance(each, str)), None)


def read_gate_options(given: Mapping[str, Any]) -> GateOptions:
    """Read them.

    Arguments:
        given: All options, as given; what is missing is the default.

    Raises:
        ConfigurationError: One is out of its range.
    """
    return GateOptions(
        limit=_read_limit(given.get("limit")),
        rate=_read_rate(given.get("rate")),
        sequence_by=_read_sequence_by(given.get("sequence_by")),
        fairness_by=check_by(given.get("fairness_by"), "fairness_by"),
    )


def _read_limit(value: object) -> tuple[Limit | str, ...]:
    if value is None:
        return ()
    said = safe_repr(value)
    parts: tuple[object, ...] = cast("tuple[object, ...]", value) if isinstance(value, tuple) else (value,)
    read: list[Limit | str] = []
    for each in parts:
        if not isinstance(each, (Limit, str)):
            raise ConfigurationError(
                f'limit must be a Limit(...), the name of a shared one such as "stripe", or both, (Limit(3), "stripe"), '
                f"not {said}"
            )
        read.append(each if isinstance(each, Limit) else check_shared_limit(each))
    if len({type(each) for each in read}) < len(read):
        raise ConfigurationError(
            f"limit can be one Limit(...) and one name of a shared limit, not {said}: of two of one kind, keep the "
            "narrower, or divide the job"
        )
    return tuple(read)


def _read_rate(value: object) -> Rate | None:
    if value is not None and not isinstance(value, Rate):
        raise ConfigurationError(f"rate must be a Rate(starts, per=...), not {safe_repr(value)}")
    return value


def _read_sequence_by(value: object) -> InSequence | None:
    if value is None:
        return None
    if isinstance(value, InSequence):
        check_by(value.name, "sequence_by")
        return value
    return InSequence(check_by(value, "sequence_by") or "")


def rules_of(name: str, options: GateOptions, parameters: Collection[str]) -> GateRules | None:
    """What a type's options mean for its jobs; None where they wait at no gate, or only calls say so.

    Arguments:
        name: The type's.
        options: Its own.
        parameters: The names of the function's. Any other name that's given is a field's of the metadata, and so is one
            behind `metadata.`, whatever the parameters are called.

    Raises:
        ConfigurationError: A name is nearly a parameter's. All jobs would wait at one gate, that of those without a value.
    """

    def by(given: str | None) -> By | None:
        if given is None or given in parameters:
            return None if given is None else By(given)
        if given.startswith(OF_METADATA):
            return By(given.removeprefix(OF_METADATA), metadata=True)
        if meant := _nearly(given, parameters):
            raise ConfigurationError(
                f"{name}: {given!r} is no parameter of the function, which has {meant!r}: is that the one that tells its jobs "
                f"apart? If a field of the metadata is meant, say {OF_METADATA + given!r}"
            )
        return By(given, metadata=True)

    if options == GateOptions():
        return None
    own, rate, sequence = options.own, options.rate, options.sequence_by
    return GateRules(
        type=name,
        limit=own is not None,
        limit_by=None if own is None else by(own.by),
        shared=options.shared,
        rate=rate is not None,
        rate_by=None if rate is None else by(rate.by),
        sequence_by=None if sequence is None else by(sequence.name),
        strict=sequence is not None and sequence.strict,
        block=sequence is not None and sequence.on_failure == "block",
        fair_by=by(options.fairness_by),
    )


def _nearly(given: str, parameters: Collection[str]) -> str | None:
    """The parameter that may be meant: its name differs in a letter, in the case and underscores, or has words more or less."""
    wanted = _letters(given)

    def alike(parameter: str) -> bool:
        letters = _letters(parameter)
        return letters == wanted or _a_letter_apart(wanted, letters) or _begins_the_other(_words(given), _words(parameter))

    return next((each for each in parameters if alike(each)), None)


def _letters(name: str) -> str:
    return name.replace("_", "").casefold()


def _words(name: str) -> list[str]:
    """`tenant_id` and `tenantId` have two."""
    return [each for each in re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).casefold().split("_") if each]


def _begins_the_other(one: list[str], other: list[str]) -> bool:
    """Whether one has all words of the other, and more behind them: `tenant` and `tenant_id`."""
    shorter, longer = sorted((one, other), key=len)
    return bool(shorter) and longer[: len(shorter)] == shorter


def _a_letter_apart(one: str, other: str) -> bool:
    """Whether one letter is missing, too many or another one, or two have changed places."""
    shorter, longer = sorted((one, other), key=len)
    if len(shorter) < _SHORTEST_ALIKE or len(longer) > len(shorter) + 1:
        return False
    same = next((place for place, letter in enumerate(shorter) if letter != longer[place]), len(shorter))
    return longer[same + 1 :] in {shorter[same:], shorter[same + 1 :]} or sorted(one) == sorted(other)


def member_of(chosen: InSequence | None, rules: GateRules | None, payload: bytes, metadata: bytes) -> SequenceMember | None:
    """The sequence that a new job is in; None where it's in none.

    Arguments:
        chosen: The call's, which counts before its type's.
        rules: Of its type.
        payload, metadata: As they're stored.
    """
    if chosen is not None:
        return SequenceMember(name=chosen.name, strict=chosen.strict, block=chosen.on_failure == "block")
    name = None if rules is None else sequence_of(rules, payload, metadata)
    return None if name is None or rules is None else SequenceMember(name=name, strict=rules.strict, block=rules.block)


def refuse_unordered_values(rules: GateRules, arguments: Mapping[str, object]) -> None:
    """Refuse sets where they would say at which gate the job waits: each process would write the same one in another order.

    Arguments:
        rules: Of the type.
        arguments: As they were passed.

    Raises:
        ArgumentsError: There is one.
    """
    for option, by in rules.told_apart_by.items():
        if not by.metadata and has_set(arguments.get(by.name)):
            raise ArgumentsError(
                f"{rules.type}: {by.name!r} has a set in it, which has no order, and {option} of the type tells its jobs apart "
                "by it: take a sorted list",
                path=by.name,
            )


def refuse_waiting_values(rules: GateRules, placed: Sequence[Placed]) -> None:
    """Refuse outputs of other calls where they would say at which gate the job waits: it has to be known before.

    Raises:
        ArgumentsError: There is one.
    """
    waiting = {str(path[0]) for _, path in placed}
    for option, by in rules.told_apart_by.items():
        if not by.metadata and by.name in waiting:
            raise ArgumentsError(
                f"{rules.type}: {by.name!r} has an output in it, which isn't there before the job runs, and {option} of the "
                "type tells its jobs apart by it: pass the value itself, or enqueue the job when it's known, in the job whose "
                "output it is (current_attempt().enqueue)",
                path=by.name,
            )


def refuse_sequences(store: object, jobs: Iterable[NewJob]) -> None:
    """Refuse jobs that are to run in a sequence where the store knows none: it would run them in any order.

    Raises:
        NotSupported: There is one.
    """
    for job in jobs:
        if job.sequence is not None and not isinstance(store, SupportsGates):
            description = getattr(store, "description", "this store")
            raise NotSupported(
                f"{description} knows no sequences, and {job.type} runs in one: leave out sequence=, or sequence_by=",
                ability="put_limits",
            )
