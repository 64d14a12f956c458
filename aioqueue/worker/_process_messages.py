"""What a worker and the process of a handler tell each other, and how errors and log records get from one to the other."""

from __future__ import annotations

import logging
import pickle
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from aioqueue.definitions._import_names import found_in
from aioqueue.runtime._exits import members
from aioqueue.vocabulary._safe_text import safe_repr, safe_str, type_name
from aioqueue.worker._text import stored_text, traceback_text

if TYPE_CHECKING:
    from aioqueue.vocabulary._job import ClaimedJob
    from aioqueue.vocabulary._phases import Progress

__all__ = [
    "Answer",
    "Begin",
    "Begun",
    "Ended",
    "Labelled",
    "Logged",
    "PhaseQuestion",
    "Reported",
    "ShownError",
    "error_from",
    "logged",
    "record_from",
    "shown_error",
]


# -- to the process ---------------------------------------------------------------------------------------------------


class Begin(NamedTuple):
    """Run an attempt.

    Attributes:
        job: As it was claimed.
        worker: The worker's name.
        module, name: The handler's import name.
        main: How to import the worker's main module, if the handler is in that.
        argv: The worker's.
        levels: Of the loggers that have one, by name.
        disabled: Up to which level logging is disabled.
    """

    job: ClaimedJob
    worker: str
    module: str
    name: str
    main: dict[str, Any]
    argv: list[str]
    levels: dict[str, int]
    disabled: int


class Answer(NamedTuple):
    """What became of a phase's question: a value, or an error."""

    value: Any = None
    error: ShownError | None = None


# -- from the process -------------------------------------------------------------------------------------------------


class Begun(NamedTuple):
    """The handler is called now."""


class Reported(NamedTuple):
    """How far the attempt has come."""

    progress: Progress


class Labelled(NamedTuple):
    """What `set_outcome` was given."""

    label: str | None


class Logged(NamedTuple):
    """A log record: what is plain, and what isn't, pickled apart since it may not come through."""

    fields: dict[str, Any]
    others: bytes | None
    error: ShownError | None


class PhaseQuestion(NamedTuple):
    """A call of `PhaseKeeper`, which is answered, unless it's `resume`."""

    verb: str
    name: str = ""
    result: bytes = b""
    error: ShownError | None = None


class Ended(NamedTuple):
    """The handler has ended: with an output, as JSON; or with an error.

    Attributes:
        output: JSON; None with an error.
        error: What it has raised, or what is wrong with what it has returned.
        unreadable: Whether it's the latter.
    """

    output: bytes | None = None
    error: ShownError | None = None
    unreadable: bool = False


# -- errors -----------------------------------------------------------------------------------------------------------


class ShownError(NamedTuple):
    """An exception on its way to another process.

    Attributes:
        pickled: The exception itself, if that comes out again as what it was.
        kind: Its class's name.
        module, qualified_name: The class's import name.
        text: The exception's text.
        traceback: Its traceback's.
        members: Of a group that can't be pickled.
    """

    pickled: bytes | None
    kind: str
    module: str
    qualified_name: str
    text: str
    traceback: str
    members: tuple[ShownError, ...] = ()


class RemoteTraceback(Exception):
    """The cause of an error that was raised in another process: its traceback there, as text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._text = text

    def __str__(self) -> str:
        return f'\n"""\n{self._text}"""'


class RemoteError(Exception):
    """Stands in for an error that can't get to this process: classes derived from it have its name."""


def shown_error(error: BaseException) -> ShownError:
    """Describe an exception, whatever is wrong with it."""
    kind = type(error)
    pickled = _pickled(error)
    inner = tuple(shown_error(each) for each in members(error)) if pickled is None else ()
    return ShownError(
        pickled,
        type_name(error),
        safe_str(kind.__module__),
        safe_str(kind.__qualname__),
        stored_text(error),
        traceback_text(error),
        inner,
    )


def error_from(shown: ShownError) -> BaseException:
    """Make the exception again, or one of the same class that has its text, or one that has the name of its class."""
    error = _unpickled(shown) or _group_from(shown) or _stand_in(shown)
    BaseException.__dict__["__cause__"].__set__(error, RemoteTraceback(shown.traceback))
    return error


def _pickled(error: BaseException) -> bytes | None:
    try:
        pickled = pickle.dumps(error)
        again = pickle.loads(pickled)  # noqa: S301 - what was pickled in the line before
    except BaseException:  # noqa: BLE001 - classified: pickling runs the error's own code; it's described by a text instead
        return None
    return pickled if type(again) is type(error) else None


def _unpickled(shown: ShownError) -> BaseException | None:
    if shown.pickled is None:
        return None
    try:
        error = pickle.loads(shown.pickled)  # noqa: S301 - from a process of ours, which runs the same code as this one
    except BaseException:  # noqa: BLE001 - classified: as in `_pickled`; its class may not be there in this process
        return None
    return error if isinstance(error, BaseException) else None


def _group_from(shown: ShownError) -> BaseException | None:
    if not shown.members:
        return None
    return BaseExceptionGroup(shown.text or "a group", [error_from(each) for each in shown.members])


def _stand_in(shown: ShownError) -> BaseException:
    for base in (_class_of(shown), RemoteError):
        if base is None:
            continue
        try:
            kind: Any = type(shown.kind, (base,), {"__str__": _text_of, "__module__": shown.module})
            error = kind.__new__(kind)
            if isinstance(error, BaseException):
                error.args = (shown.text,)
                return error
        except BaseException:  # noqa: BLE001, S112 - classified: a class that can't be derived from; the other one can
            continue
    return RemoteError(shown.text)


def _text_of(error: BaseException) -> str:
    return safe_str(error.args[0])


def _class_of(shown: ShownError) -> type[BaseException] | None:
    """The error's class in this process, if it's there: retry policies may name it. Nothing is imported for that."""
    module = sys.modules.get(shown.module)
    try:
        found = None if module is None else found_in(module, shown.qualified_name)
    except AttributeError:
        return None
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


# -- log records ------------------------------------------------------------------------------------------------------

_PLAIN = (str, int, float, bool, type(None))


def logged(record: logging.LogRecord) -> Logged:
    """What is sent of a record. Its text is made now, by what it's made of here."""
    fields = dict(record.__dict__)
    try:
        fields["msg"] = record.getMessage()
    except Exception as error:  # noqa: BLE001 - classified: as the worker's own records, one that has no text says so
        fields["msg"] = f"{safe_str(record.msg)} <its arguments can't be put in: {type_name(error)}>"
    fields["args"] = None
    info = fields.pop("exc_info", None)
    shown: ShownError | None = None
    raised: object = cast("tuple[object, ...]", info)[1] if isinstance(info, tuple) else None
    if isinstance(raised, BaseException):
        shown = shown_error(raised)
        fields["exc_text"] = fields.get("exc_text") or shown.traceback
    others = {name: value for name, value in fields.items() if type(value) not in _PLAIN}
    plain = {name: value for name, value in fields.items() if name not in others}
    if not others:
        return Logged(plain, None, shown)
    try:
        return Logged(plain, pickle.dumps(others), shown)
    except Exception:  # noqa: BLE001 - classified: they're shown by their texts instead
        return Logged({**plain, **{name: safe_repr(value) for name, value in others.items()}}, None, shown)


def record_from(sent: Logged) -> logging.LogRecord:
    """Make the record again."""
    fields = dict(sent.fields)
    if sent.others is not None:
        try:
            fields.update(pickle.loads(sent.others))  # noqa: S301 - from a process of ours, which runs the same code
        except Exception as error:  # noqa: BLE001 - classified: the record says what is missing
            fields["left_out"] = f"fields that can't be read in this process: {type_name(error)}"
    if sent.error is not None:
        raised = error_from(sent.error)
        fields["exc_info"] = (type(raised), raised, None)
    return logging.makeLogRecord(fields)
