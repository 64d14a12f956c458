"""Where a job comes from, beside whoever enqueued it: a tick of a schedule, or a dry run. Most jobs have nothing of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

__all__ = ["Origin", "decode_origin"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What is stored with a job of a schedule, or of a dry run. A chain's next job takes it over.

    Attributes:
        schedule: The name of the schedule that enqueued it; None for none.
        nominal_time: The time of the schedule's tick that it's for, in UTC, whenever it was enqueued.
        dry_run: Whether it's run dry: its handler is told so, whichever worker runs it.
    """

    schedule: str | None = None
    nominal_time: datetime | None = None
    dry_run: bool = False

    @property
    def fields(self) -> dict[str, object]:
        """What is set, by name, as JSON and the log have it: the time in ISO 8601, in UTC."""
        fields: dict[str, object] = {}
        if self.schedule is not None:
            fields["schedule"] = self.schedule
        if self.nominal_time is not None:
            fields["nominal_time"] = self.nominal_time.astimezone(UTC).isoformat()
        if self.dry_run:
            fields["dry_run"] = True
        return fields

    def encode(self) -> str:
        """As JSON text, as the stores keep it. What isn't set isn't in it."""
        return orjson.dumps(self.fields).decode()


def decode_origin(text: str | bytes | None) -> Origin | None:
    """Read what a store keeps. What somebody has written there by hand, and can't be read, counts as nothing."""
    if text is None:
        return None
    try:
        fields: Any = orjson.loads(text)
        schedule, nominal = fields.get("schedule"), fields.get("nominal_time")
        return Origin(
            schedule=schedule if isinstance(schedule, str) else None,
            nominal_time=None if nominal is None else datetime.fromisoformat(nominal).astimezone(UTC),
            dry_run=fields.get("dry_run") is True,
        )
    except (ValueError, TypeError, AttributeError, OverflowError):
        return None
