"""Batches in portions."""

from __future__ import annotations

import pytest

from aioqueue.postgres import _rows_portions
from aioqueue.postgres._rows_portions import in_portions


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([1], [[1]]),
        ([1, 2, 3], [[1, 2, 3]]),
        ([5, 5, 1], [[5, 5], [1]]),
        ([11], [[11]]),
        ([1, 11, 1], [[1], [11], [1]]),
        ([11, 12], [[11], [12]]),
        ([0] * 9, [[0] * 4, [0] * 4, [0]]),
    ],
)
def test_portions(monkeypatch: pytest.MonkeyPatch, sizes: list[int], expected: list[list[int]]) -> None:
    """At most four rows and ten bytes, but for what is larger alone."""
    monkeypatch.setattr(_rows_portions, "MOST_ROWS", 4)
    monkeypatch.setattr(_rows_portions, "MOST_BYTES", 10)
    assert [list(portion) for portion in in_portions(sizes, lambda size: size)] == expected
