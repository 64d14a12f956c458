"""Jobs of dry runs: what is enqueued by a handler that is only tried out is only tried out, too."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aioqueue.errors import DryRunRefused
from aioqueue.vocabulary._origin import Origin

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioqueue.definitions._call import Call
    from aioqueue.vocabulary._job import NewJob

__all__ = ["DRY_RUN", "dry_rows", "is_dry", "not_declared", "refuse_in_dry_run"]

DRY_RUN = Origin(dry_run=True)


def is_dry(origin: Origin | None) -> bool:
    """Whether a job is run dry, whichever worker runs it."""
    return origin is not None and origin.dry_run


def refuse_in_dry_run(call: Call[Any]) -> None:
    """Refuse a call in a dry run of which the job type doesn't know what that is: it would be run for real.

    Raises:
        DryRunRefused: It isn't declared for it.
    """
    if not call.job_type.dry_run:
        raise not_declared(call.job_type.name)


def not_declared(name: str) -> DryRunRefused:
    """What is wrong with a job type in a dry run that isn't declared for it."""
    return DryRunRefused(
        f"{name} isn't declared dry_run=True, so its jobs can't be part of a dry run: declare it, with a handler that looks at "
        "current_attempt().dry_run, or don't enqueue it where the attempt is a dry run",
        type=name,
    )


def dry_rows(calls: Iterable[Call[Any]], rows: Iterable[NewJob]) -> list[NewJob]:
    """Mark the rows of calls that a dry run enqueues.

    They hold no unique keys: what is enqueued for real mustn't find them in its place, nor they change what waits for real.
    The key is there as a label.

    Arguments:
        calls: In order.
        rows: Theirs.

    Raises:
        DryRunRefused: The job type of one isn't declared for dry runs. Or an id was chosen for it, which the job that does it
            for real could have no more.
    """
    return [_dry(call, row) for call, row in zip(calls, rows, strict=True)]


def _dry(call: Call[Any], row: NewJob) -> NewJob:
    refuse_in_dry_run(call)
    if row.chosen_id:
        raise DryRunRefused(
            f"this call of {row.type} has an id of your choice (id=), and is enqueued in a dry run: the job that does it for "
            "real couldn't have that id any more. Leave the id out where the attempt is a dry run",
            type=row.type,
        )
    return replace(row, origin=DRY_RUN, unique=None, max_delay=None)
