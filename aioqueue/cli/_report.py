"""What became of the jobs that a command was to change."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING

import click

from aioqueue.cli._json import print_json
from aioqueue.cli._text import one_line
from aioqueue.vocabulary._answers import Cancellation, Changed

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from uuid import UUID

    Became = Changed | Cancellation

__all__ = ["Report"]

_DONE = (Changed.DONE, Cancellation.CANCELLED, Cancellation.CANCELLING)
_EXPLAINED: dict[Became, str] = {
    Changed.DONE: "done",
    Cancellation.CANCELLED: "cancelled",
    Cancellation.CANCELLING: "asked to end: it is running, and its worker is told",
    Changed.NOT_FOUND: "there is no such job",
    Changed.RUNNING: "it is running",
    Changed.BLOCKS: "other unfinished jobs wait for it: --cascade deletes them too",
    Changed.BLOCKER_FAILED: "a chain that it waited for has failed: retry that one, with --cascade",
    Changed.KEY_HELD: "another unfinished chain has its unique key",
    Changed.CONTENDED: "somebody's open transaction holds it: try again",
}
_COUNTED = {
    Changed.BLOCKS: "since other unfinished jobs wait for them: see --cascade",
    Changed.BLOCKER_FAILED: "since chains that they waited for have failed: see --cascade",
    Changed.KEY_HELD: "since other unfinished chains have their unique keys",
    Changed.CONTENDED: "since somebody's open transaction holds them: try again",
}
"""Of these somebody has to do something; what else wasn't changed has changed by itself meanwhile."""
_MOST_HOLDERS = 3


class Report:
    """Counts what became of jobs, and tells it: to programs of each job as soon as it's known, and at the end in numbers.

    Arguments:
        done: What becomes of them, such as `deleted`.
        as_json: Whether it's told as JSON objects, one a line.

    Attributes:
        as_json: As given.
    """

    def __init__(self, done: str, *, as_json: bool) -> None:
        self._done = done
        self.as_json = as_json
        self._became: Counter[Became] = Counter()
        self._holders: list[UUID] = []

    @property
    def done(self) -> int:
        """How many jobs have been changed, or were asked to end."""
        return sum(self._became[each] for each in _DONE)

    @property
    def others(self) -> int:
        """How many haven't."""
        return self._became.total() - self.done

    @property
    def refused(self) -> int:
        """How many haven't, and somebody has to do something about it."""
        return sum(self._became[each] for each in _COUNTED)

    @property
    def seen(self) -> int:
        """How many it has been told of."""
        return self._became.total()

    def add(self, became: Mapping[UUID, Became], holders: Mapping[UUID, UUID] = MappingProxyType({})) -> None:
        """Count some more, whose change is committed; `holders` are the chains that hold their unique keys."""
        self._became.update(became.values())
        self._holders += [each for each in dict.fromkeys(holders.values()) if each not in self._holders][:_MOST_HOLDERS]
        if self.as_json:
            for job_id, each in became.items():
                holder = {"holder": str(holders[job_id])} if job_id in holders else {}
                print_json({"id": str(job_id), "became": each.value, **holder})

    def tell_each(self, became: Mapping[UUID, Became], wrong: str, holders: Mapping[UUID, UUID] = MappingProxyType({})) -> None:
        """Count those whose ids were given, and tell of each; `wrong` is said of one that isn't in the right state."""
        self.add(became, holders)
        if not self.as_json:
            for job_id, each in became.items():
                holder = f": {holders[job_id]}" if job_id in holders else ""
                click.echo(f"{job_id}  {_EXPLAINED.get(each, wrong)}{holder}")

    @contextmanager
    def ended(self, nothing: str) -> Generator[None]:
        """Tell at the end of the block how many there were, also when something has cut it short.

        Arguments:
            nothing: Said if there were none.
        """
        try:
            yield
        except BaseException:
            self.end(" until then")
            raise
        self.end("" if self._became else f": {nothing}")

    def end(self, more: str = "") -> None:
        """Tell how many there were; `more` is said to people after that."""
        if self.as_json:
            print_json({"changed": self.done, "unchanged": self.others})
        else:
            click.echo(one_line(f"{self.done:,} {self._done}{self._rest()}{more}"))

    def _rest(self) -> str:
        text = ""
        if running := self._became[Cancellation.CANCELLING]:
            text = f", {running:,} of them {'is' if running == 1 else 'are'} running, and their workers are told"
        if changed := self.others - self.refused:
            text += f", {changed:,} not: they have changed meanwhile"
        for each, why in _COUNTED.items():
            if number := self._became[each]:
                text += f", {number:,} not, {why}"
        if held := self._became[Changed.KEY_HELD]:
            named = ", ".join(map(str, self._holders[:_MOST_HOLDERS]))
            text += f" ({named}{', and others' if named and held > _MOST_HOLDERS else ''})" if named else ""
        return text
