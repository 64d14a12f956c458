"""What the tests without a database share."""

from __future__ import annotations

import pytest

from aioqueue import Registry


@pytest.fixture
def registry() -> Registry:
    return Registry("site.")
