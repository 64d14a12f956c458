"""What became of the jobs that a command was to change."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from aioqueue.cli._json import print_json
from aioqueue.cli._text import one_line
from aioqueue.vocabulary._answers import Changed

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from uuid import UUID

__all__ = ["Report"]

_EXPLAINED = {
    Changed.NOT_FOUND: "there is no such job",
    Changed.RUNNING: "it is running",
    Changed.BLOCKS: "other unfinished jobs wait for it: --cascade deletes them too",
    Changed.BLOCKER_FAILED: "a chain that it waited for has failed: retry that one, with --cascade",
}


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
        self._became: Counter[Changed] = Counter()

    @property
    def done(self) -> int:
        """How many jobs have been changed."""
        return self._became[Changed.DONE]

    @property
    def others(self) -> int:
        """How many haven't."""
        return self._became.total() - self.done

    def add(self, became: Mapping[UUID, Changed]) -> None:
        """Count some more, whose change is committed."""
        self._became.update(became.values())
        if self.as_json:
            for job_id, each in became.items():
                print_json({"id": str(job_id), "became": each.value})

    def tell_each(self, became: Mapping[UUID, Changed], wrong: str) -> None:
        """Count those whose ids were given, and tell of each; `wrong` is said of one that isn't in the right state."""
        self.add(became)
        if self.as_json:
            self.end()
        else:
            for job_id, each in became.items():
                click.echo(f"{job_id}  {'done' if each is Changed.DONE else _EXPLAINED.get(each, wrong)}")

    @contextmanager
    def ended(self, where: str) -> Generator[None]:
        """Tell at the end of the block how many there were, also when something has cut it short.

        Arguments:
            where: The database, named if there were none.
        """
        try:
            yield
        except BaseException:
            self.end(" until then")
            raise
        self.end("" if self._became else f": no jobs that fit in {one_line(where)}")

    def end(self, more: str = "") -> None:
        """Tell how many there were; `more` is said to people after that."""
        if self.as_json:
            print_json({"changed": self.done, "unchanged": self.others})
        else:
            click.echo(f"{self.done} {self._done}{self._why_not()}{more}")

    def _why_not(self) -> str:
        waited = self._became[Changed.BLOCKS] + self._became[Changed.BLOCKER_FAILED]
        text = ""
        if changed := self.others - waited:
            text = f", {changed} not: they have changed meanwhile"
        if waited:
            text += f", {waited} not, since other jobs and they wait for each other: see --cascade"
        return text
