"""A chain drawn as a tree: its steps, what each waits for, and who waits for its end."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aioqueue.cli._job_text import asked_to_end, attempts, last_error, shown_time
from aioqueue.cli._tables import colored_state, is_terminal, shortened
from aioqueue.cli._text import one_line
from aioqueue.store_rules._unique_keys import TAKEN_OVER_ORDINAL
from aioqueue.vocabulary._job import JobState, was_discarded
from aioqueue.vocabulary._time import duration_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from uuid import UUID

    from aioqueue.client import Client
    from aioqueue.vocabulary._blockers import Blocker
    from aioqueue.vocabulary._job import Job

__all__ = ["Node", "chain_tree", "draw", "step_text"]

_MOST_CHILDREN = 10
"""Blockers of one step, or dependents of one chain, that are shown; the others are counted."""
_MOST_COUNTED = 1_000
_MOST_LEVELS = 4
_MOST_NODES = 200
_LINES = ("├─ ", "└─ ", "│  ")
_PLAIN_LINES = ("|- ", "`- ", "|  ")


@dataclass(slots=True)
class Node:
    """One line, and those below it."""

    text: str
    below: list[Node] = field(default_factory=list["Node"])


class _Tree:
    """What has been drawn of it so far: no chain twice, and not too much.

    Arguments:
        client: Open.
        shown: The chains that are there already.
    """

    def __init__(self, client: Client, shown: Iterable[UUID]) -> None:
        self._store = client.store
        self._shown = set(shown)
        self._left = _MOST_NODES

    async def waits_for(self, job: Job, level: int = 0) -> list[Node]:
        """The chains that a job waits for, or has waited for, and what those wait for."""
        edges = await self._store.list_blockers(job.id, _MOST_COUNTED)
        first = edges[:_MOST_CHILDREN]
        ends = await self._store.fetch_ends([each.chain_id for each in first])
        nodes: list[Node] = []
        for edge, end in zip(first, ends, strict=True):
            node = Node(_blocker_text(edge, end))
            nodes.append(node)
            if end is not None and self._enters(edge.chain_id, node, level):
                node.below += await self.waits_for(end, level + 1)
        return nodes + _rest(len(edges), len(first))

    async def waiting(self, chain_id: UUID, level: int = 0) -> list[Node]:
        """The unfinished jobs that wait for a chain's end, and those that wait for theirs."""
        edges = await self._store.list_dependents(chain_id, _MOST_COUNTED)
        ids = list(dict.fromkeys(each.job_id for each in edges))
        nodes: list[Node] = []
        for job in await self._store.fetch(ids[:_MOST_CHILDREN]):
            if job is None:
                continue
            node = Node(step_text(job))
            nodes.append(node)
            if self._enters(job.chain_id, node, level):
                node.below += await self.waiting(job.chain_id, level + 1)
        return nodes + _rest(len(ids), min(len(ids), _MOST_CHILDREN))

    def _enters(self, chain_id: UUID, node: Node, level: int) -> bool:
        """Whether what is below a chain is shown here; what isn't is told."""
        if chain_id in self._shown:
            node.text += "  (shown above)"
            return False
        self._shown.add(chain_id)
        self._left -= 1
        if level + 1 >= _MOST_LEVELS or self._left <= 0:
            node.text += f"  (more: aioqueue chains show {chain_id})"
            return False
        return True


async def chain_tree(client: Client, chain_id: UUID, steps: Sequence[Job]) -> tuple[list[Node], list[Node]]:
    """Look what is around a chain.

    Arguments:
        client: Open.
        chain_id: The chain's.
        steps: Those that are shown.

    Returns:
        The steps, with what each waits for below it; and who waits for the chain's end.
    """
    tree = _Tree(client, [chain_id])
    nodes = [Node(f"step {step.position}  {step_text(step)}", await tree.waits_for(step)) for step in steps]
    return nodes, await tree.waiting(chain_id)


def step_text(job: Job) -> str:
    """A job in one line."""
    attempt = f"attempt {attempts(job)}" if job.attempt > 1 else ""
    return _joined(job.type, job.state.value, str(job.id), _when(job), attempt, asked_to_end(job), last_error(job))


def _blocker_text(edge: Blocker, end: Job | None) -> str:
    if edge.ordinal >= TAKEN_OVER_ORDINAL:
        how = "its unique key was taken over"
    else:
        how = "however it ends" if edge.settled else ""
    if end is None:
        return _joined(edge.type or "?", "gone", str(edge.chain_id), how)
    place = f"at step {end.position}" if end.position else ""
    return _joined(end.type, end.state.value, str(edge.chain_id), place, _when(end), asked_to_end(end), how)


def _joined(job_type: str, state: str, *others: str) -> str:
    shown = shortened if is_terminal(sys.stdout) else str
    texts = [shown(one_line(each)) for each in others if each]
    return "  ".join([shown(one_line(job_type)), colored_state(state), *texts])


def _when(job: Job) -> str:
    """What matters of its times."""
    if job.finished_at is not None:
        took = ""
        if job.started_at is not None and not was_discarded(job):
            took = f", took {duration_text((job.finished_at - job.started_at).total_seconds())}"
        return f"finished {shown_time(job.finished_at)}{took}"
    if job.state is JobState.RUNNING:
        return f"since {shown_time(job.started_at)}{f' on {job.worker}' if job.worker else ''}"
    if job.state is JobState.BLOCKED:
        return f"waits for {job.open_blockers:,} chain{'' if job.open_blockers == 1 else 's'}" if job.open_blockers else ""
    if job.state is JobState.HELD:
        return f"held by {job.held_by}" if job.held_by else ""
    return f"due {shown_time(job.run_at)}"


def _rest(number: int, shown: int) -> list[Node]:
    if number == shown:
        return []
    least = "at least " if number >= _MOST_COUNTED else ""
    return [Node(f"… and {least}{number - shown:,} more")]


def draw(nodes: Sequence[Node]) -> list[str]:
    """Give a tree's lines."""
    fork, last, beside = _lines()
    lines: list[str] = []
    for number, node in enumerate(nodes):
        ends = number == len(nodes) - 1
        lines.append((last if ends else fork) + node.text)
        lines += [("   " if ends else beside) + line for line in draw(node.below)]
    return lines


def _lines() -> tuple[str, str, str]:
    """What connects them: other characters where standard output's encoding doesn't have these."""
    try:
        "".join(_LINES).encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return _PLAIN_LINES
    return _LINES
