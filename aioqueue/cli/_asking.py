"""Questions before something is changed that can't be brought back: asked on a terminal, answered beforehand by `--yes`."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Any, TypeVar

import click

from aioqueue.cli._options import WrongUsage
from aioqueue.cli._tables import is_terminal

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ask", "check_somebody_answers", "yes_option"]

Command = TypeVar("Command", bound="Callable[..., Any]")


def yes_option(command: Command) -> Command:
    """Add `--yes`."""
    return click.option("--yes", is_flag=True, help="Don't ask.")(command)


def check_somebody_answers(*, yes: bool) -> None:
    """Refuse a command that would ask where nobody could answer; called before anything is looked up.

    Raises:
        WrongUsage: Standard input isn't a terminal, and `--yes` wasn't given.
    """
    if not yes and not is_terminal(sys.stdin):
        raise WrongUsage("nobody can be asked, since standard input isn't a terminal: give --yes if it's meant so")


def ask(question: str, *, yes: bool) -> None:
    """Ask on standard error whether to go on, unless `--yes` was given; another answer ends the command with 1.

    So does Ctrl-C, at once. asyncio takes the first one for a cancellation, which nobody sees while the event loop stands.
    """
    if yes:
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        click.confirm(f"{question} Go on?", abort=True, err=True)
    finally:
        signal.signal(signal.SIGINT, before)
