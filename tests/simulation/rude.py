"""What misbehaves in places where a worker counts on manners: policies that raise, errors whose texts raise."""

from __future__ import annotations

from typing import Any

from aioqueue import Retry

MAX_ATTEMPTS = 3


class RudeBackoff:
    """A policy of the user's that raises instead of saying how long to wait."""

    def delay(self, attempt: int) -> float:
        raise ZeroDivisionError(f"no idea, at attempt {attempt}")

    def encode(self) -> dict[str, Any]:
        return {"kind": "rude"}


POLICY = Retry(max_attempts=MAX_ATTEMPTS, backoff=RudeBackoff())


class HostileError(Exception):
    """Its text can't be made."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class HostileText(str):
    """A text that doesn't behave as one."""

    __slots__ = ()

    def __len__(self) -> int:
        raise RuntimeError("no length")

    def __str__(self) -> str:
        raise RuntimeError("no text")


class HostileReason(Exception):
    """Its text is hostile, and its class too."""

    def __str__(self) -> str:
        return HostileText("hostile")

    @property
    def __class__(self) -> Any:
        raise RuntimeError("no class")
