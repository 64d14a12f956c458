"""What commands say of a schedule: to programs as JSON values, to people in tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from aioqueue.cli._job_text import json_or_text, shown_time
from aioqueue.cli._json import to_json
from aioqueue.cli._tables import show_table
from aioqueue.cli._text import one_line
from aioqueue.vocabulary._schedules import TickOutcome

if TYPE_CHECKING:
    from aioqueue.client import Schedule
    from aioqueue.vocabulary._schedules import DecidedTick

__all__ = ["describe_schedule", "print_schedule", "schedule_row", "timing_text"]

_OUTCOMES = {TickOutcome.ENQUEUED: "enqueued", TickOutcome.SKIPPED: "skipped", TickOutcome.DUPLICATE: "duplicate"}


def describe_schedule(each: Schedule, *, arguments: bool = False) -> dict[str, Any]:
    """A schedule for programs.

    Arguments:
        each: It.
        arguments: Whether its arguments are shown.
    """
    described: dict[str, Any] = {
        "name": each.name,
        "owner": each.owner,
        "type": each.job_type,
        "cron": each.cron,
        "every": each.every,
        "timezone": each.timezone,
        "catch_up": each.catch_up,
        "grace": each.grace,
        "catch_up_limit": each.catch_up_limit,
        "overlap": each.overlap,
        "key": each.key,
        "tags": list(each.tags),
        "priority": each.priority,
        "paused": each.paused,
        "reason": each.reason or None,
        "by": each.by or None,
        "next_tick": each.next_tick,
        "last_tick": each.last_tick,
    }
    if arguments:
        described["arguments"] = json_or_text(each.payload)
    described["ticks"] = [_describe_tick(tick) for tick in each.ticks]
    return described


def _describe_tick(tick: DecidedTick) -> dict[str, Any]:
    return {
        "nominal_time": tick.nominal_time,
        "decided_at": tick.decided_at,
        "outcome": _OUTCOMES[tick.outcome],
        "reason": tick.reason or None,
        "chain": None if tick.chain_id is None else str(tick.chain_id),
        "count": tick.count,
    }


def schedule_row(each: Schedule) -> tuple[str, ...]:
    """A schedule in a table."""
    newest = each.ticks[0] if each.ticks else None
    return (
        each.name,
        each.job_type,
        timing_text(each),
        shown_time(each.next_tick),
        shown_time(each.last_tick),
        "" if newest is None else _became(newest),
        _paused(each),
    )


def timing_text(each: Schedule) -> str:
    """When its ticks are."""
    if each.every is not None:
        return f"every {_exactly(each.every)}"
    return each.cron or "?" if each.timezone == "UTC" else f"{each.cron} {each.timezone}"


def _exactly(interval: float) -> str:
    """An interval as it is, in the largest unit that it's whole numbers of; others round it."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if interval % size == 0:
            return f"{interval / size:,.0f} {unit}"
    return f"{interval:,.6f}".rstrip("0").rstrip(".") + " s"


def _paused(each: Schedule) -> str:
    if not each.paused:
        return ""
    by = f"by {each.by}" if each.by else "yes"
    return f"{by}: {each.reason}" if each.reason else by


def _became(tick: DecidedTick) -> str:
    many = f" {tick.count:,}" if tick.count > 1 else ""
    return f"{_OUTCOMES[tick.outcome]}{many}{f': {tick.reason}' if tick.reason else ''}"


def print_schedule(each: Schedule, *, arguments: bool) -> None:
    """Show it to people."""
    missed = {
        "latest": f"the newest is enqueued, up to {_exactly(each.grace)} late",
        "none": "none is enqueued that is over a minute late",
    }
    missed["all"] = f"the newest {each.catch_up_limit:,} are enqueued"
    lines = {
        "name": each.name,
        "defined": "at run time" if each.owner is None else f"in the code of the registry {each.owner}",
        "type": each.job_type,
        "when": timing_text(each),
        "next (UTC)": shown_time(each.next_tick),
        "paused": _paused(each),
        "missed ticks": missed[each.catch_up],
        "overlap": each.overlap,
        "key": each.key or "",
        "tags": ", ".join(each.tags),
        "priority": str(each.priority),
        "arguments": to_json(json_or_text(each.payload)) if arguments else "",
    }
    width = max(map(len, lines))
    for name, text in lines.items():
        if text:
            click.echo(f"{name:{width}}  {one_line(text)}")
    if each.ticks:
        click.echo()
        header = ("tick (UTC)", "decided (UTC)", "became", "chain")
        show_table(header, [_tick_row(tick) for tick in each.ticks])


def _tick_row(tick: DecidedTick) -> tuple[str, ...]:
    chain = "" if tick.chain_id is None else str(tick.chain_id)
    return shown_time(tick.nominal_time), shown_time(tick.decided_at), _became(tick), chain
