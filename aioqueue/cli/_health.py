"""`aioqueue health`: asks the worker that runs on this machine how it is, for a container's probe."""

from __future__ import annotations

import http.client
import json
import math
import queue
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

import click

from aioqueue.cli._json import json_option, print_json
from aioqueue.cli._options import Problem, WrongUsage, explained, setting_option
from aioqueue.cli._text import one_line
from aioqueue.definitions._environment import Environment
from aioqueue.definitions._setting_table import METRICS_HOST, METRICS_PORT

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["health"]

_ANSWER_SECONDS = 5.0
_LONGEST_ANSWER_BYTES = 1 << 20
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - nothing is bound to it here


@click.command()
@setting_option(METRICS_PORT, what="The running worker's.")
@setting_option(METRICS_HOST, what="The address at which it listens.")
@click.option("--live", is_flag=True, help="Only whether its event loop turns, not whether it does its work.")
@json_option("What the worker has answered, as one JSON object.")
def health(metrics_port: int | None, metrics_host: str | None, *, live: bool, as_json: bool) -> None:
    """Ask the worker that runs here whether it does its work.

    Exits with 1, and prints the reasons, if it doesn't, or doesn't answer within 5 s. The worker has to be started with
    --metrics-port, or the variable, which counts here too.
    """
    with explained():
        port, host = METRICS_PORT.read(metrics_port, Environment()), METRICS_HOST.read(metrics_host, Environment())
    if not port:
        raise WrongUsage("--metrics-port: at which port does the worker serve its health?")
    status, text = _ask(_EVERYWHERE.get(host, host), port, "/healthz" if live else "/readyz")
    answer, lines = _read(text)
    if as_json:
        print_json(answer)
    else:
        for line in lines:
            click.echo(line)
    if status != 200:
        raise click.exceptions.Exit(1)


def _ask(host: str, port: int, path: str) -> tuple[int, str]:
    """Ask, in a thread that nobody waits for any longer than that: a peer may send a byte now and then for ever."""
    answers: queue.SimpleQueue[tuple[int, str] | Exception] = queue.SimpleQueue()

    def ask() -> None:
        try:
            with closing(http.client.HTTPConnection(host, port, timeout=_ANSWER_SECONDS)) as connection:
                connection.request("GET", path)
                with connection.getresponse() as answer:
                    answers.put((answer.status, answer.read(_LONGEST_ANSWER_BYTES).decode(errors="replace")))
        except Exception as error:  # noqa: BLE001 - handed to whoever has asked; a host's name may be anything
            answers.put(error)

    threading.Thread(target=ask, name="aioqueue health", daemon=True).start()
    try:
        answer = answers.get(timeout=_ANSWER_SECONDS)
    except queue.Empty:
        answer = TimeoutError(f"no whole answer within {_ANSWER_SECONDS:g} s")
    if isinstance(answer, Exception):
        raise Problem(f"the worker doesn't answer at {host}:{port}: {answer!r}")
    return answer


def _read(text: str) -> tuple[Mapping[str, Any], list[str]]:
    """What was answered, and what a person reads: the state, and below it why."""
    try:
        answer: Any = json.loads(text)
        if "alive" in answer:
            lag = float(answer["event_loop_lag_seconds"])
            return answer, ["alive" if answer["alive"] else f"the event loop hasn't turned for over {math.floor(lag)} s"]
        lines = ["ready" if answer["ready"] else "not ready", *(f"  {each}" for each in answer.get("reasons", ()))]
        workers = cast("list[Mapping[str, Any]]", answer["workers"])
        for worker in workers:
            lines += [f"  {worker['name']}: {each}" for each in (*worker["reasons"], *worker["notes"])]
    except (ValueError, OverflowError, KeyError, TypeError) as error:
        raise Problem(f"what answers isn't a worker's port: {error!r}") from None
    return answer, [one_line(line) for line in lines]
