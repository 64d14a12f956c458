"""A database in a file, and the command line called in this process."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from click.testing import CliRunner

from aioqueue.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click.testing import Result


class Invoke(Protocol):
    def __call__(self, *arguments: str, exit_code: int = 0, **environment: str) -> Result: ...


@pytest.fixture(autouse=True)
def _same_logging() -> Iterator[None]:
    """Commands configure the root logger, which the other tests share."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def invoke(url: str) -> Invoke:
    def call(*arguments: str, exit_code: int = 0, **environment: str) -> Any:
        result = CliRunner().invoke(main, arguments, env={"AIOQUEUE_URL": url, **environment})
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == exit_code, result.output
        return result

    return call
