"""A database in a file, and the command line called in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import pytest
from click.testing import CliRunner

from aioqueue.cli import main

if TYPE_CHECKING:
    from click.testing import Result


class Invoke(Protocol):
    def __call__(self, *arguments: str, exit_code: int = 0, **environment: str) -> Result: ...


@pytest.fixture(autouse=True)
def _same_logging(same_logging: None) -> None:
    """For every test of commands."""


@pytest.fixture
def invoke(url: str) -> Invoke:
    def call(*arguments: str, exit_code: int = 0, **environment: str) -> Any:
        result = CliRunner().invoke(main, arguments, env={"AIOQUEUE_URL": url, **environment})
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == exit_code, result.output
        return result

    return call
