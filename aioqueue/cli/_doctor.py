"""`aioqueue doctor`: whether all that the queue needs is as it should be, and what to do about what isn't."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aioqueue.cli._imports import load_registry
from aioqueue.cli._json import json_option, print_json
from aioqueue.cli._options import app_dir_option, log_level_option, looking_at, run, url_option
from aioqueue.cli._tables import colored
from aioqueue.cli._text import one_line
from aioqueue.cli._variables import judge_variables
from aioqueue.vocabulary._finding import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.vocabulary._finding import Finding

__all__ = ["doctor"]

_COLORS = {Verdict.OK: "green", Verdict.WARNING: "yellow", Verdict.PROBLEM: "red", Verdict.UNKNOWN: "cyan"}


@click.command()
@url_option
@app_dir_option
@click.argument("app", required=False, metavar="[MODULE:REGISTRY]")
@json_option()
@log_level_option("critical")
def doctor(url: str | None, app: str | None, app_dir: str | None, *, as_json: bool) -> None:
    """Look whether all that the queue needs is as it should be, and say what to do about what isn't.

    The connection, rights, schema, settings, clocks, what holds back vacuum, workers, and types that nobody runs; with
    MODULE:REGISTRY also types that it has no handler for. Changes nothing. Exits with 1 if there is a problem; warnings
    and what can't be told are none.
    """
    registry = None if app is None else load_registry(app, app_dir)

    async def look() -> Sequence[Finding]:
        return await looking_at(url).diagnose(registry)

    findings = [*run(look), *judge_variables()]
    if as_json:
        described = [
            {"check": each.check, "verdict": each.verdict.value, "seen": each.seen, "advice": each.advice or None}
            for each in findings
        ]
        print_json({"healthy": not _problems(findings), "findings": described})
    else:
        _print(findings)
    if _problems(findings):
        raise click.exceptions.Exit(1)


def _problems(findings: Sequence[Finding]) -> int:
    return sum(each.verdict is Verdict.PROBLEM for each in findings)


def _print(findings: Sequence[Finding]) -> None:
    width = max(len(each.check) for each in findings)
    for each in findings:
        verdict = colored(f"{each.verdict.value:<7}", _COLORS[each.verdict])
        click.echo(f"{verdict}  {each.check:<{width}}  {one_line(each.seen)}")
        if each.advice:
            click.echo(f"{'':<{width + 11}}-> {one_line(each.advice)}")
    numbers = {verdict: sum(each.verdict is verdict for each in findings) for verdict in Verdict}
    click.echo(", ".join(f"{number} {verdict.value}" for verdict, number in numbers.items() if number))
