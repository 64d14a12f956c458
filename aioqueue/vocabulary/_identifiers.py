"""Job ids: UUID version 7, whose order is their order of creation (RFC 9562, section 5.7)."""

from __future__ import annotations

import os
import time
from uuid import UUID

__all__ = ["new_id", "read_id"]

_last_millisecond = 0
_counter = 0


def new_id() -> UUID:
    """Make an id that is greater than all that this process has made before.

    The 12 bits after the time are a counter within the millisecond (method 1 of RFC 9562, section 6.2): when it
    runs over, the time is moved on by one millisecond.

    Returns:
        A UUID of version 7.
    """
    global _last_millisecond, _counter
    now = time.time_ns() // 1_000_000
    if now > _last_millisecond:
        _last_millisecond, _counter = now, 0
    else:
        _counter += 1
        if _counter > 0xFFF:
            _last_millisecond, _counter = _last_millisecond + 1, 0
    random = int.from_bytes(os.urandom(8), "big") & 0x3FFF_FFFF_FFFF_FFFF
    return UUID(int=_last_millisecond << 80 | 0x7000 << 64 | _counter << 64 | 0x8000_0000_0000_0000 | random)


def read_id(value: object) -> UUID:
    """Read a job's id as it comes out of a path, a JSON document or a database's row.

    Arguments:
        value: A UUID (or one of a class derived from it), or its text.

    Returns:
        The id, as a plain `uuid.UUID`.

    Raises:
        ValueError: It's neither; the message shows it.
    """
    if type(value) is UUID:
        return value
    if isinstance(value, UUID):
        return UUID(int=value.int)
    if isinstance(value, str):
        try:
            return UUID(value)
        except ValueError:
            pass
    raise ValueError(f"a job's id is a UUID or its text, such as '0193f5a2-7c1e-7000-8000-2f0a1b2c3d4e', not {value!r:.200}")


def _forget_in_child() -> None:
    # The random part already keeps a child's ids apart from its parent's; the counter need not be shared.
    global _counter
    _counter = 0


os.register_at_fork(after_in_child=_forget_in_child)
