"""`aioqueue workers`: who works, since when, for which types, and how busy each is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aioqueue.cli._json import json_option, print_json
from aioqueue.cli._options import log_level_option, looking_at, run, url_option
from aioqueue.cli._tables import show_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.vocabulary._workers import LeaseFacts

__all__ = ["workers"]


@click.command()
@url_option
@json_option()
@log_level_option("warning")
def workers(url: str | None, *, as_json: bool) -> None:
    """Show the workers that are alive, and the leases of those that died and whose jobs nobody has taken over yet."""

    async def look() -> tuple[Sequence[LeaseFacts], str]:
        async with looking_at(url) as client:
            return await client.leases(), client.store.description

    leases, description = run(look)
    if as_json:
        print_json({"leases": [_as_json(each) for each in leases]})
    elif not leases:
        click.echo(f"no workers in {description}")
    else:
        _show(leases)


def _as_json(lease: LeaseFacts) -> dict[str, object]:
    return {
        "id": str(lease.id),
        "worker": lease.worker,
        "opened_at": None if lease.opened_at is None else lease.opened_at.isoformat(),
        "ends_in": lease.ends_in,
        "alive": lease.ends_in > 0,
        "extra": lease.extra,
        "types": None if lease.types is None else list(lease.types),
        "slots": lease.slots,
        "running": lease.running,
        "singleton": lease.singleton,
    }


def _show(leases: Sequence[LeaseFacts]) -> None:
    header = ["worker", "since", "lease", "running", "slots", "types"]
    rows = [_row(each) for each in leases]
    if any(each.singleton is not None for each in leases):  # as most workers have no such name
        header.append("alone as")
        rows = [(*row, each.singleton or "") for row, each in zip(rows, leases, strict=True)]
    show_table(header, rows)


def _row(lease: LeaseFacts) -> tuple[str, ...]:
    """One line. A worker's further leases, for types with a `lease` of their own, share its slots."""
    return (
        lease.worker,
        "" if lease.opened_at is None else f"{lease.opened_at:%Y-%m-%d %H:%M:%S}",
        f"{lease.ends_in:.0f} s left" if lease.ends_in > 0 else f"ran out {-lease.ends_in:.0f} s ago",
        str(lease.running),
        "shared" if lease.extra else "?" if lease.slots is None else str(lease.slots),
        "?" if lease.types is None else ", ".join(lease.types),
    )
