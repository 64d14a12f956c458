"""What the tests on PostgreSQL share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.postgres.libraries import LIBRARIES, Opened

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager


@pytest.fixture(params=list(LIBRARIES))
def library(request: pytest.FixtureRequest) -> Callable[[str], AbstractAsyncContextManager[Opened]]:
    """Opens a transaction of a user's, with each library that we know."""
    return LIBRARIES[request.param]
