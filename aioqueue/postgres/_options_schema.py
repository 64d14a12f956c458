"""The schema's name, and what follows from it: how statements quote it, and the channel of its notifications."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache

from aioqueue.errors import ConfigurationError

__all__ = ["Schema"]

_LONGEST_NAME_BYTES = 63
_NAMES = re.compile("@(?:schema|schema_text|channel|body|cycles_lock|gates_lock)@")


def _quote(text: str, mark: str) -> str:
    return mark + text.replace(mark, mark * 2) + mark


@dataclass(frozen=True)
class Schema:
    """Where one installation's tables are.

    Arguments:
        name: Any name that PostgreSQL takes, exactly as written: capitals and odd characters are kept.

    Raises:
        ConfigurationError: PostgreSQL can't have a schema of that name.
    """

    name: str = "aioqueue"

    def __post_init__(self) -> None:
        name = self.name
        try:
            size = len(name.encode()) if isinstance(name, str) else 0
        except UnicodeEncodeError:
            size = 0
        if not 0 < size <= _LONGEST_NAME_BYTES or "\0" in name or name.startswith("pg_") or name == "information_schema":
            raise ConfigurationError(
                f"schema {name!r} can't be used: PostgreSQL wants 1 to {_LONGEST_NAME_BYTES} bytes of UTF-8 without NUL, "
                "not beginning with pg_"
            )

    @cached_property
    def quoted(self) -> str:
        """The name as an identifier in a statement."""
        return _quote(self.name, '"')

    @cached_property
    def literal(self) -> str:
        """The name as text in a statement, whatever `standard_conforming_strings` says."""
        return "E" + _quote(self.name.replace("\\", "\\\\"), "'")

    @cached_property
    def channel(self) -> str:
        """The channel of its notifications: the name itself may be too long for one."""
        return "aioqueue_" + hashlib.sha256(self.name.encode()).hexdigest()[:20]

    @cached_property
    def lock(self) -> int:
        """The key of the advisory lock that migrations take."""
        return int.from_bytes(hashlib.sha256(b"aioqueue " + self.name.encode()).digest()[:8], "big", signed=True)

    @cached_property
    def cycles_lock(self) -> int:
        """The key of the advisory lock under which chains that are there already come to wait for others."""
        return int.from_bytes(hashlib.sha256(b"aioqueue cycles " + self.name.encode()).digest()[:8], "big", signed=True)

    @cached_property
    def gates_lock(self) -> int:
        """What keeps the keys of the advisory locks of its gates apart from those of others."""
        return int.from_bytes(hashlib.sha256(b"aioqueue gates " + self.name.encode()).digest()[:8], "big", signed=True)

    def owner_lock(self, owner: str) -> int:
        """The key of the advisory lock under which the schedules of one registry are reconciled."""
        key = f"aioqueue schedules {self.name} {owner}".encode(errors="surrogatepass")
        return int.from_bytes(hashlib.sha256(key).digest()[:8], "big", signed=True)

    def render(self, template: str) -> str:
        """Put the names into a statement's template.

        Arguments:
            template: SQL with `@schema@`, `@schema_text@`, `@channel@`, `@cycles_lock@`, `@gates_lock@`, and `@body@` around a
                function's body.
        """
        return _rendered(self, template)


# The stores of a process, and the parts of each, have their statements in common.
@lru_cache(maxsize=1024)
def _rendered(schema: Schema, template: str) -> str:
    body = "$aioqueue$"
    while body in schema.name:
        body = f"{body[:-1]}_$"
    names = {
        "@schema@": schema.quoted,
        "@schema_text@": schema.literal,
        "@channel@": schema.channel,
        "@body@": body,
        "@cycles_lock@": str(schema.cycles_lock),
        "@gates_lock@": str(schema.gates_lock),
    }
    # All at once, so that nothing is looked for inside the name itself.
    return _NAMES.sub(lambda found: names[found[0]], template)
