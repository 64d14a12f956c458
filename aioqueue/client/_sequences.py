"""Sequences at run time: `client.sequences`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from aioqueue.client._limits import keeper_of_gates
from aioqueue.definitions._gates import InSequence
from aioqueue.definitions._job_type import JobType
from aioqueue.errors import ConfigurationError
from aioqueue.vocabulary._codec import CodecError, ValueCodec
from aioqueue.vocabulary._gate_values import value_of
from aioqueue.vocabulary._gates import SEQUENCE, By

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.client._session import Session
    from aioqueue.vocabulary._gates import GateStatus, KeptSequence

__all__ = ["Sequences"]

_ALL = object()


class Sequences:
    """The sequences in which jobs run one at a time: `client.sequences`.

    One is meant by its name, as calls give it (`sequence="account:42"`); or by a job type that has `sequence_by`, and a value.

    Each method raises `NotSupported` where the store knows no sequences, `StoreUnavailable` where the database can't be
    reached, `ClientClosed` where the client isn't open; and `resume` `OutsideTransaction` inside our own `transaction()` or
    `completion()`. Nothing here takes `tx=`.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    @overload
    async def resume(self, sequence: str, /) -> bool: ...
    @overload
    async def resume(self, sequence: JobType[..., Any, Any], value: object, /) -> bool: ...
    async def resume(self, sequence: str | JobType[..., Any, Any], value: object = _ALL, /) -> bool:
        """Let a sequence go on that a failed job keeps (`on_failure="block"`), as if it hadn't been one of it.

        Retrying or deleting the failed job lets it go on too.

        Arguments:
            sequence: Its name; or a job type with `sequence_by`.
            value: Of the argument, or the field of the metadata, that this names.

        Returns:
            Whether it was kept.

        Raises:
            ConfigurationError: There can be no such sequence.
        """
        name = _sequence_name(sequence, value)
        opened = self._session.opened()
        opened.refuse_outside_transaction()
        (kept,) = await keeper_of_gates(opened.store).resume_sequences([name])
        return kept

    async def list(self) -> Sequence[KeptSequence]:
        """The sequences that a failed job keeps, by name, with that job and how many wait behind it; 1,000 at most."""
        return await keeper_of_gates(self._session.opened().store).kept_sequences()

    @overload
    async def status(self, sequence: str, /) -> GateStatus: ...
    @overload
    async def status(self, sequence: JobType[..., Any, Any], value: object, /) -> GateStatus: ...
    async def status(self, sequence: str | JobType[..., Any, Any], value: object = _ALL, /) -> GateStatus:
        """How a sequence is at the moment: who runs, whose turn it is, how many wait, and which failed job keeps it.

        Arguments:
            sequence, value: As of `resume`.

        Raises:
            ConfigurationError: There can be no such sequence.
        """
        gate = f"{SEQUENCE}={_sequence_name(sequence, value)}"
        (found,) = await keeper_of_gates(self._session.opened().store).gate_statuses([gate])
        return found


def _sequence_name(sequence: str | JobType[..., Any, Any], value: object) -> str:
    if not isinstance(sequence, JobType):
        if value is not _ALL:
            raise ConfigurationError(
                "a value is one of a job type's sequences: give the type first, or the sequence's name alone"
            )
        return InSequence(sequence).name
    if sequence.sequence_by is None:
        raise ConfigurationError(
            f"{sequence.name} has no sequence_by, so values of it are in no sequence: give the name of one"
        )
    if value is _ALL:
        raise ConfigurationError(f"say which sequence of {sequence.name}: the value of {sequence.sequence_by.name!r}")
    try:
        written = ValueCodec(dict[str, Any], sequence.converters).encode({"value": value}, sequence.sequence_by.name)
    except CodecError as error:
        raise ConfigurationError(str(error)) from None
    return sequence.name + value_of(By("value"), written, b"{}")
